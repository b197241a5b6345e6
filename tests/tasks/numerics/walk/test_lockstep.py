"""All prompts and steps of decoding in one walk: what only one shows, and where a router is at fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import RemoteError, WorkerCrashed
from day0.adapters.base.run_store import RunStore
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.measures.signatures import load_signatures
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import NumericsRecord
from day0_worker import NodeRun
from day0_worker.modules import NodeModules, place
from support.in_process_target import InProcessTarget, dies
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


def measured(tiny: TinyRelease, target: InProcessTarget, store: Path, **more: Any) -> NumericsRecord:
    asked = NumericsOptions(**{"prompts": "decode,padded,shifted,window"} | more)
    question = Question(tiny.release, tiny.skeleton, RunStore(store), "Four words are here", asked=asked)
    return measure_numerics(question, target, target.describe())


def prompts_of(record: NumericsRecord) -> dict[str, str]:
    assert record.facts.logits is not None
    return {prompt.name: prompt.worst_block for prompt in record.facts.logits.prompts if not prompt.reason}


@pytest.mark.parametrize(
    "model_type",
    [
        "llama",
        "deepseek_v3",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt_oss", "qwen3_next")),
    ],
)
def test_every_prompt_runs_on_a_clean_target_and_nothing_is_missing(
    tiny: Tiny, tmp_path: Path, model_type: str
) -> None:
    model = tiny(model_type)
    record = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
    assert {block.verdict for block in record.facts.blocks} == {"pass"}
    assert set(prompts_of(record)) >= {"texts", "decode", "padded", "shifted"}
    assert set(prompts_of(record).values()) == {""}
    called = sum(1 for node in model.skeleton.nodes if node.called)
    passes = 1 + 8 + 2 + ("window" in prompts_of(record))
    assert record.facts.manifest.expected == record.facts.manifest.seen == called * passes
    assert record.facts.decode is not None
    assert record.facts.decode.positions == 8
    assert all(block.bit_stable for block in record.facts.blocks)
    signatures = load_signatures(RunStore(tmp_path), record.files["signatures"])
    assert set(signatures) == {block.name for block in record.facts.blocks}
    experts = [node.name for node in model.skeleton.nodes if node.experts]
    assert [routing.name for routing in record.facts.routing] == experts
    assert sum(routing.unexplained for routing in record.facts.routing) == 0


class Changed(InProcessTarget):
    """Something is done to a node's module once its weights are there."""

    def __init__(self, text: str, node: str, change: Callable[[torch.nn.Module], None]) -> None:
        super().__init__(text)
        self._identity = f"changed {node}"
        loaded = self._stack.loaded

        def changed(job: NodeRun) -> NodeModules:
            modules = loaded(job)
            if job.node == node and job.weights is not None:
                change(modules.module(node))
            return modules

        self._stack.loaded = changed  # type: ignore[method-assign]  # the seam of this test


def test_a_wrong_router_is_told_by_flips_that_no_near_tie_explains(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("deepseek_v3")
    node = next(node.name for node in model.skeleton.nodes if node.experts)

    def turn(layer: torch.nn.Module) -> None:
        gate = layer.get_parameter("mlp.gate.weight")
        place(layer, "mlp.gate.weight", gate.detach().flip(0))

    record = measured(model, Changed("eager@cpu/bf16", node, turn), tmp_path, prompts="texts")
    routing = next(routing for routing in record.facts.routing if routing.name == node)
    assert routing.flips > routing.tokens // 2
    assert routing.unexplained > 0
    assert routing.flips == routing.near_tie + routing.unexplained
    assert float(routing.forced_both) < 0.02 < float(routing.forced_ids) + 1
    assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [node]
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.block == node
    assert sum(one.unexplained for one in record.facts.routing if one.name != node) == 0


def test_a_fault_of_decoding_alone_is_told_with_its_prompt(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    node = [node.name for node in model.skeleton.nodes if node.role == "layer"][1]

    def stale(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 1.1 if tensor.shape[1] == 1 else tensor

    record = measured(model, InProcessTarget("eager@cpu/bf16", {node: stale}), tmp_path)
    block = next(block for block in record.facts.blocks if block.name == node)
    assert block.verdict == "fail"
    assert block.reason.startswith("on decode: ")
    assert prompts_of(record) == {"texts": "", "padded": "", "shifted": "", "decode": node}


def test_a_target_that_dies_of_one_prompt_keeps_the_others(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    node = [node.name for node in model.skeleton.nodes if node.role == "layer"][1]

    def dies_of_batches(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape[0] > 1:
            raise WorkerCrashed("the worker died by signal 11", log=["Segmentation fault"])
        return tensor

    target = InProcessTarget("eager@cpu/bf16", {node: dies_of_batches})
    record = measured(model, target, tmp_path, prompts="padded")
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert verdicts.pop(node) == "fail"
    assert set(verdicts.values()) == {"pass"}
    block = next(block for block in record.facts.blocks if block.name == node)
    assert block.reason.startswith("crash on padded: ")
    assert block.local is not None
    assert record.facts.manifest.missing == (f"{node} on padded",)


def second(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A fault of nothing but the second run, and of its repetition where it dies."""
    runs = itertools.count()
    return lambda tensor: change(tensor) if next(runs) in {1, 2 if change is dies else 1} else tensor


@pytest.mark.parametrize(
    ("change", "reason", "codes"),
    [
        (lambda tensor: tensor * 1.5, "on a second run gain_score ", {"NUM001", "NUM034"}),
        (lambda tensor: tensor.float(), "on a second run dtype: ", {"NUM004"}),
        (dies, "on a second run crash: ", {"NUM002"}),
    ],
)
def test_a_fault_of_the_second_run_alone_is_told(
    tiny: Tiny, tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor], reason: str, codes: set[str]
) -> None:
    model = tiny("llama")
    node = [node.name for node in model.skeleton.nodes if node.role == "layer"][1]
    record = measured(model, InProcessTarget("eager@cpu/bf16", {node: second(change)}), tmp_path)
    verdicts = {block.name: (block.verdict, block.reason) for block in record.facts.blocks}
    verdict, told = verdicts.pop(node)
    assert verdict == "fail"
    assert told.startswith(reason)
    assert {verdict for verdict, _ in verdicts.values()} == {"pass"}
    assert codes <= {finding.code for finding in record.findings}
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.block == node
    assert record.verdict == "fail"


def test_what_a_stack_does_not_claim_to_do_is_left_uncompared(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    first, second = [node.name for node in model.skeleton.nodes if node.role == "layer"][:2]

    def refuses(tensor: torch.Tensor) -> torch.Tensor:
        raise RemoteError("this cache is not lifted out", kind="unsupported", type_name="StackError")

    def refuses_steps(tensor: torch.Tensor) -> torch.Tensor:
        return refuses(tensor) if tensor.shape[1] == 1 else tensor

    target = InProcessTarget("eager@cpu/bf16", {first: refuses, second: refuses_steps})
    record = measured(model, target, tmp_path, prompts="decode")
    verdicts = {block.name: (block.verdict, block.reason) for block in record.facts.blocks}
    assert verdicts.pop(first) == ("unverified", "unsupported: this cache is not lifted out")
    assert verdicts.pop(second) == ("unverified", "unsupported on decode: this cache is not lifted out")
    assert {verdict for verdict, _ in verdicts.values()} == {"pass"}
    assert record.facts.first_fault is None
    assert record.verdict == "unverified"
    found = {finding.code: finding.subject.name for finding in record.findings}
    assert found["NUM008"] in (first, second)
