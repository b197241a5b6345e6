"""Bugs in the nodes of tiny models: what is found, what is below the noise, what no node can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from day0.adapters.base.errors import WorkerCrashed
from day0.adapters.base.target import Call
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget
from day0.tasks.numerics.prompts.passes import Pass
from day0.tasks.numerics.record_parts import BugResult
from day0.tasks.numerics.self_test.bug_runs import BugArm, on_target
from day0.tasks.numerics.self_test.self_test import Bench, Wide, matrix, nodes_to_try, try_bugs
from day0.tasks.numerics.self_test.visit_judge import VisitJudge, own_yardstick
from day0.tasks.numerics.walk.visit import Visit
from day0.tasks.reference_arm import Arm
from day0.tasks.target_nodes import TargetNodes
from support.in_process_target import InProcessTarget, scaled
from support.tiny_releases import TinyRelease
from support.visits import prompts, visits
from support.wide_models import save_wide

CLAIMS = ("op", "fragment", "parts")
Wide_ = Callable[[str], TinyRelease]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Wide_:
    made: dict[str, TinyRelease] = {}

    def get(kind: str) -> TinyRelease:
        if kind not in made:
            made[kind] = TinyRelease(save_wide(kind, tmp_path_factory.mktemp("wide") / kind))
        return made[kind]

    return get


def target(tiny: TinyRelease, dtype: str, target: InProcessTarget | None = None) -> TargetNodes:
    chosen = target or InProcessTarget(f"eager@cpu/{dtype}", capabilities=CLAIMS)
    return TargetNodes(chosen, tiny.skeleton, dtype)


def bench(tiny: TinyRelease, dtype: str, *, fine: bool = True) -> Bench:
    finer = Wide(target(tiny, "fp32"), Arm(tiny.skeleton, "fp32", {})) if fine and dtype != "fp32" else None
    return Bench(BugArm(tiny.skeleton, "fp64", {}), target(tiny, dtype), dtype, finer, chunk=4)


def passes(tiny: TinyRelease, length: int = 48) -> list[Pass]:
    window = tiny.skeleton.config.get("sliding_window") or 0
    return prompts(240, length=length, window=window, longest=512)


def at(tiny: TinyRelease, node: str, dtype: str) -> Visit:
    return next(visit for visit in visits(tiny, dtype, passes(tiny)) if visit.node.name == node)


def by_bug(results: Sequence[BugResult]) -> dict[str, BugResult]:
    return {result.bug: result for result in results}


@pytest.mark.parametrize("kind", ["llama", pytest.param("qwen3_moe", marks=pytest.mark.slow)])
def test_what_applies_is_found_at_its_node_alone_and_the_rest_in_fp32(wide: Wide_, kind: str) -> None:
    tiny = wide(kind)
    wanted = nodes_to_try(tiny.skeleton)
    assert wanted["model.layers.2"] in ("model.layers.0", "model.layers.1")
    results: list[BugResult] = []
    for visit in visits(tiny, "bf16", passes(tiny)):
        if visit.node.name in wanted:
            results += try_bugs(visit, bench(tiny, "bf16"), wanted[visit.node.name])
    rows = matrix(results)
    tried = [row for row in rows if row.applicability != "no"]
    assert {(row.detected, row.block_right) for row in tried} == {(True, True)}
    assert {row.dtype for row in tried if row.applicability == "below_noise"} == {"fp32"}
    layer = {row.bug: row for row in tried if row.where == "model.layers.2"}
    assert layer["rope_pairing"].applicability == layer["mask_off_by_one"].applicability == "yes"
    assert layer["norm_eps"].applicability == "below_noise"
    assert layer["stale_kv_slot"].by.endswith(" on decode")
    rotary = {row.bug: row for row in tried if row.where == "model.rotary_emb"}
    assert rotary["positions_count_padding"].by.endswith(" on padded")
    lacked = {row.bug: row for row in rows if row.applicability == "no"}
    assert lacked["window_off_by_one"].reason == "its attention has no sliding window"
    if kind == "llama":
        assert rotary["ignored_rotary_scaling"].detected
        assert "experts" in lacked["expert_row"].reason
    else:
        assert {"swapped_experts", "permuted_experts", "unnormalised_top_k", "expert_row"} <= set(layer)


def test_in_fp32_an_epsilon_shows_and_nothing_is_tried_twice(wide: Wide_) -> None:
    tiny = wide("llama")
    visit = at(tiny, "model.norm", "fp32")
    found = by_bug(try_bugs(visit, bench(tiny, "fp32"), bugs=["norm_eps", "dropped_bias"]))
    assert list(found) == ["norm_eps", "dropped_bias"]
    assert (found["norm_eps"].applicability, found["norm_eps"].dtype) == ("yes", "fp32")
    assert found["norm_eps"].detected
    assert found["dropped_bias"].reason == "none of its linear layers has a bias"
    assert math.isnan(float(found["dropped_bias"].effect))


def test_without_a_finer_target_what_is_below_the_noise_says_so(wide: Wide_) -> None:
    tiny = wide("llama")
    visit = at(tiny, "model.norm", "bf16")
    found = by_bug(try_bugs(visit, bench(tiny, "bf16", fine=False), bugs=["norm_eps"]))["norm_eps"]
    assert (found.applicability, found.detected, found.dtype) == ("below_noise", None, "bf16")
    assert 0 < float(found.effect) < 5
    assert "smaller than rounding" in found.reason


def test_a_bug_that_no_prompt_reaches_is_not_one_that_was_missed(wide: Wide_) -> None:
    tiny = wide("llama")
    short = [step for step in passes(tiny) if step.name in ("texts", "shifted")]
    visit = next(one for one in visits(tiny, "bf16", short) if one.node.name == "model.layers.2")
    found = by_bug(try_bugs(visit, bench(tiny, "bf16"), bugs=["stale_kv_slot"]))["stale_kv_slot"]
    assert (found.applicability, found.detected) == ("no", None)
    assert found.reason == "none of the prompts changes anything in fp64"


def test_a_gate_that_sees_nothing_is_found_out(wide: Wide_, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VisitJudge, "fails", lambda self, ran, group: "")
    tiny = wide("llama")
    visit = at(tiny, "lm_head", "bf16")
    found = by_bug(try_bugs(visit, bench(tiny, "bf16"), bugs=["missing_block_scale"]))
    assert found["missing_block_scale"].applicability == "yes"
    assert (found["missing_block_scale"].detected, found["missing_block_scale"].block_right) == (False, False)


def test_a_gate_that_sees_faults_everywhere_names_no_block(wide: Wide_) -> None:
    tiny = wide("llama")
    always = InProcessTarget("eager@cpu/bf16", {"model.layers.2": scaled(1.5)}, CLAIMS)
    chosen = Bench(BugArm(tiny.skeleton, "fp64", {}), target(tiny, "bf16", always), "bf16")
    visit = at(tiny, "model.layers.2", "bf16")
    found = by_bug(try_bugs(visit, chosen, "model.layers.0", bugs=["rope_pairing"]))["rope_pairing"]
    assert (found.detected, found.block_right) == (True, False)


def test_a_worker_that_dies_of_a_bug_is_told(wide: Wide_) -> None:
    tiny = wide("llama")

    def dying(tensor: torch.Tensor) -> torch.Tensor:
        raise WorkerCrashed("the worker died by signal 11", log=["Segmentation fault"])

    dies = InProcessTarget("eager@cpu/bf16", {"lm_head": dying}, CLAIMS)
    chosen = Bench(BugArm(tiny.skeleton, "fp64", {}), target(tiny, "bf16", dies), "bf16")
    visit = at(tiny, "lm_head", "bf16")
    found = by_bug(try_bugs(visit, chosen, bugs=["missing_block_scale"]))["missing_block_scale"]
    assert found.detected is None
    assert found.reason.startswith("crash: ")


def test_a_clean_target_passes_on_every_prompt_also_where_experts_are_handed_out(wide: Wide_) -> None:
    tiny = wide("qwen3_moe")
    nodes = target(tiny, "bf16")
    judged = 0
    for visit in visits(tiny, "bf16", passes(tiny)):
        judge = VisitJudge(visit, own_yardstick(visit, torch.bfloat16))
        ran = on_target(nodes, visit, [step.name for step in judge.passes], state="clean", chunk=3)
        for group in judge.groups:
            assert judge.fails(ran, group) == "", (visit.node.name, group)
            judged += 1
        if visit.node.name == "model.layers.2":
            assert set(ran.routed) == {step.name for step in judge.passes}
            other = {name: Call(one.tree, {}) for name, one in ran.outputs.items()}
            assert other.keys() == ran.outputs.keys()
    assert judged == 4 * len([node for node in tiny.skeleton.nodes if node.called])


@pytest.mark.slow
def test_one_worker_serves_all_bugs_and_a_person_can_put_one_in_by_hand(wide: Wide_, tmp_path: Path) -> None:
    tiny = wide("llama")
    visit = at(tiny, "model.layers.2", "bf16")
    with open_target(TargetSpec.parse("eager@cpu/bf16")) as worker:
        assert isinstance(worker, WorkerTarget)
        chosen = Bench(BugArm(tiny.skeleton, "fp64", {}), TargetNodes(worker, tiny.skeleton, "bf16"), "bf16")
        found = try_bugs(
            visit, chosen, "model.layers.0", ["rope_pairing", "mask_off_by_one", "stale_kv_slot"]
        )
        assert [(row.detected, row.block_right) for row in found] == [(True, True)] * 3
        assert worker.starts == 1
    by_hand = TargetSpec.parse("eager@cpu/bf16?with=bug:rope_pairing@model.layers.2")
    judge = VisitJudge(visit, own_yardstick(visit, torch.bfloat16))
    with open_target(by_hand) as worker:
        assert isinstance(worker, WorkerTarget)
        nodes = TargetNodes(worker, tiny.skeleton, "bf16")
        assert judge.fails(on_target(nodes, visit, ["texts"], state="hand", chunk=4), "texts")
