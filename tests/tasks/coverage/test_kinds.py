from __future__ import annotations

from collections.abc import Callable

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks import thresholds
from day0.tasks.coverage import kind_walk
from day0.tasks.coverage.kind_walk import KindWalk, TooLarge
from day0.tasks.coverage.kinds import compile_kinds
from day0.tasks.coverage.record_kinds import KindCompile
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


def kinds_of(tiny: Tiny, model_type: str, target: str, seconds: float = 600) -> list[KindCompile]:
    spec = TargetSpec.parse(target)
    walk = KindWalk(tiny(model_type).skeleton, spec.dtype or "fp32", spec.options)
    with open_target(spec, timeout=300) as opened:
        return compile_kinds(walk, opened, seconds=seconds)


def test_each_kind_runs_once_in_both_phases(tiny: Tiny) -> None:
    found = kinds_of(tiny, "qwen3_moe", "eager@cpu/fp32")
    skeleton = tiny("qwen3_moe").skeleton
    called = {node.kind for node in skeleton.nodes if node.called}
    assert {(one.kind, one.phase) for one in found} == {
        (kind, phase) for kind in called for phase in ("prefill", "decode")
    }
    assert {one.outcome for one in found} == {"ran"}
    assert all(one.deviation is not None and float(one.deviation) < 1e-5 for one in found)
    layers = [one for one in found if one.role == "layer" and one.phase == "prefill"]
    assert {one.feed_forward: one.nodes for one in layers} == {"dense": 1, "moe": 2}
    # Nothing is compiled, so nothing is counted.
    assert not any(one.operators or one.kernels for one in found)


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
    found = kinds_of(tiny, "llama", "eager@cpu/fp32", seconds=0)
    assert {(one.outcome, one.detail) for one in found if one.phase == "prefill"} == {
        ("not_run", "no time was left")
    }


def test_kinds_that_do_not_fit_are_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_walk, "KIND_BYTES", 1000)
    with pytest.raises(TooLarge, match="GiB of weights"):
        KindWalk(tiny("llama").skeleton, "fp32", {})
    assert thresholds.KIND_BYTES > 1000


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
