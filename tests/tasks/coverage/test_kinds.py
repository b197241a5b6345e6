from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.open import open_target
from day0.tasks.coverage.kind_facts import compiled_facts, is_known, seconds_of
from day0.tasks.coverage.kind_rows import KindRows, KindsOn
from day0.tasks.coverage.kind_walk import KindWalk, TooLarge
from day0.tasks.coverage.kinds import Trials, compile_kinds
from day0.tasks.coverage.record_kinds import KindCompile
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
FINGERPRINT = Fingerprint(family="f 1", exact={"version": "1"})


def tried(tiny: Tiny, model_type: str, target: str, until: float = float("inf")) -> Trials:
    """All that became of the kinds; the walk is closed."""
    spec = TargetSpec.parse(target)
    on = KindsOn(spec, spec.dtype or "fp32", FINGERPRINT, "config")
    with (
        KindWalk(tiny(model_type).skeleton, on.dtype, spec.options) as walk,
        open_target(spec, timeout=300) as opened,
    ):
        trials = Trials(walk, opened, on, KindRows(spec.registry_name), until)
        compile_kinds(trials)
    return trials


def kinds_of(tiny: Tiny, model_type: str, target: str, until: float = float("inf")) -> list[KindCompile]:
    trials = tried(tiny, model_type, target, until)
    return compiled_facts(trials.on, trials.rows, tiny(model_type).skeleton)


def test_each_kind_runs_once_in_both_phases(tiny: Tiny) -> None:
    trials = tried(tiny, "qwen3_moe", "eager@cpu/fp32")
    skeleton = tiny("qwen3_moe").skeleton
    found = compiled_facts(trials.on, trials.rows, skeleton)
    called = {node.kind for node in skeleton.nodes if node.called}
    assert {(one.kind, one.phase) for one in found} == {
        (kind, phase) for kind in called for phase in ("prefill", "decode")
    }
    assert {(one.outcome, one.grade, one.reduced) for one in found} == {("ran", "measured", "")}
    assert all(one.deviation is not None and float(one.deviation) < 1e-5 for one in found)
    layers = [one for one in found if one.role == "layer" and one.phase == "prefill"]
    assert {one.feed_forward: one.nodes for one in layers} == {"dense": 1, "moe": 2}
    # Nothing is compiled, so nothing is counted.
    assert not any(one.operators or one.kernels for one in found)
    took = seconds_of(trials.on, trials.rows, skeleton)
    assert {(one.node, one.phase) for one in took} == {(one.node, one.phase) for one in found}
    assert all(one.compile > 0 and one.run >= 0 for one in took)


@pytest.mark.usefixtures("faulty_stack")
def test_a_kind_that_fails_says_where_and_does_not_decode(tiny: Tiny) -> None:
    target = "faulty@cpu/fp32?fault=missing_operator&layer=model.layers.0"
    found = {(one.node, one.phase): one for one in kinds_of(tiny, "llama", target)}
    layer = found["model.layers.0", "prefill"]
    assert (layer.outcome, layer.op) == ("missing_operator", "aten.silu.out")
    assert layer.deviation is None
    after = found["model.layers.0", "decode"]
    assert (after.outcome, after.detail) == ("not_run", "its prefill ended as missing_operator")
    others = [one for one in found.values() if one.node != "model.layers.0"]
    assert {one.outcome for one in others} == {"ran"}


@pytest.mark.slow
@pytest.mark.usefixtures("faulty_stack")
def test_a_worker_that_dies_is_blamed_on_its_kind_alone(tiny: Tiny) -> None:
    target = "faulty@cpu/fp32?fault=segfault&layer=model.norm"
    found = kinds_of(tiny, "llama", target)
    prefill = {one.node: one.outcome for one in found if one.phase == "prefill"}
    assert {node for node, outcome in prefill.items() if outcome != "ran"} == {"model.norm"}
    assert prefill["model.norm"] == "crash"


def test_no_time_left_is_not_run(tiny: Tiny) -> None:
    trials = tried(tiny, "llama", "eager@cpu/fp32", until=0.0)
    found = compiled_facts(trials.on, trials.rows, tiny("llama").skeleton)
    assert {(one.outcome, one.detail, one.grade) for one in found} == {("not_run", "no time was left", "")}
    assert not is_known(trials.on, trials.rows, tiny("llama").skeleton)
    why = compiled_facts(trials.on, trials.rows, tiny("llama").skeleton, "no memory")
    assert {one.detail for one in why} == {"no memory"}


def test_kinds_that_do_not_fit_are_refused(tiny: Tiny) -> None:
    with pytest.raises(TooLarge, match="more than 45%"):
        KindWalk(tiny("llama").skeleton, "fp32", {}, memory=1000)


def test_a_kind_with_fewer_experts_says_so(tiny: Tiny) -> None:
    skeleton = tiny("qwen3_moe").skeleton
    with KindWalk(skeleton, "fp32", {}) as whole:
        layer = next(node for node in whole.firsts.values() if node.feed_forward == "moe")
        full = sum(math.prod(shape) * width for shape, width in whole.shapes(layer).values())
    spec = TargetSpec.parse("eager@cpu/fp32")
    on = KindsOn(spec, "fp32", FINGERPRINT, "config")
    with (
        KindWalk(skeleton, "fp32", {}, memory=int(full * 3.9)) as walk,
        open_target(spec, timeout=300) as opened,
    ):
        trials = Trials(walk, opened, on, KindRows(spec.registry_name))
        compile_kinds(trials)
        smaller = sum(math.prod(shape) * width for shape, width in walk.shapes(layer).values())
    assert smaller < full
    found = compiled_facts(on, trials.rows, skeleton)
    assert {one.outcome for one in found} == {"ran"}
    experts = next(
        skeleton.config[name] for name in ("num_experts", "num_local_experts") if name in skeleton.config
    )
    assert {one.reduced for one in found if one.feed_forward == "moe"} == {
        f"{experts // 2} of {experts} experts"
    }
    assert {one.reduced for one in found if one.feed_forward != "moe"} == {""}
    # The kind is that of the model, whatever ran of it.
    assert {one.kind for one in found} == {node.kind for node in skeleton.nodes if node.called}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_openvino_names_grouped_attention_and_runs_without_it(tiny: Tiny) -> None:
    found = {(one.node, one.phase): one for one in kinds_of(tiny, "llama", "openvino@cpu/fp32")}
    layer = found["model.layers.0", "prefill"]
    assert layer.outcome == "shape"
    assert layer.op == "aten.scaled_dot_product_attention.default"
    assert layer.shape == "4 against 2 in dimension 1"
    assert {one.outcome for one in found.values() if one.role != "layer"} == {"ran"}
    around = kinds_of(tiny, "llama", "openvino@cpu/fp32?attn=eager")
    assert {one.outcome for one in around} == {"ran"}
    assert all(float(one.deviation or 0) < 1e-5 for one in around)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("target", "operator", "kernel"),
    [
        ("onnxruntime@cpu/fp32", "onnx.MatMul", "com.microsoft.FusedMatMul"),
        ("inductor@cpu/fp32", "aten.mm.default", "extern"),
    ],
)
def test_fusion_shows_as_operators_before_and_kernels_after(
    tiny: Tiny, target: str, operator: str, kernel: str
) -> None:
    found = kinds_of(tiny, "llama", target)
    assert {one.outcome for one in found} == {"ran"}
    layer = next(one for one in found if one.role == "layer" and one.phase == "prefill")
    # Seven projections, and for ONNX the two products of attention.
    assert layer.operators[operator] >= 7
    assert layer.kernels[kernel] > 0
    assert sum(layer.kernels.values()) < sum(layer.operators.values())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_code_that_breaks_the_graph_is_told(tiny: Tiny) -> None:
    # Experts one after the other: how many tokens each gets is only known when it runs.
    found = kinds_of(tiny, "qwen3_moe", "inductor@cpu/fp32?experts=eager")
    assert {one.outcome for one in found} == {"ran"}
    broken = {one.node for one in found if one.breaks}
    assert broken == {one.node for one in found if one.feed_forward == "moe"}
