from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from day0.adapters.base.errors import RemoteError
from day0.adapters.base.target import Answer, Call, CompileReport, Fragment
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.coverage.dynamic_shapes import Case, example_sizes, sweep_shapes
from day0.tasks.coverage.kind_walk import KindWalk
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
SPEC = TargetSpec.parse("onnxruntime@cpu/fp32")


class Compiler:
    """Stands for a compiling target: it counts what it would compile, and computes nothing."""

    spec = SPEC
    timeout = 10.0

    def __init__(self, key: Callable[[Call], object], refuses: Callable[[Call], bool] | None = None) -> None:
        self.key, self.refuses = key, refuses or (lambda call: False)
        self.made: dict[str, set[object]] = {}
        self.breaks: tuple[str, ...] = ()
        self.varying: set[tuple[int, ...]] = set()

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        self.varying.add(tuple(fragment.varying))
        if self.refuses(example):
            raise RemoteError("no", kind="shape", type_name="", place={"op": "aten.mm.default"})
        self.made.setdefault(fragment.kind, set()).add((str(example.tree), self.key(example)))
        return fragment.kind

    def run(self, handle: str, node: str, weights: Any, inputs: Call, *, state: str | None = None) -> Answer:
        return Answer(Call(None, {}), 0.0, 0, {}, ())

    def report(self, handle: str) -> CompileReport:
        return CompileReport(graphs=len(self.made[handle]), breaks=self.breaks)


def shapes_of(call: Call) -> object:
    return tuple(tuple(tensor.shape) for tensor in call.tensors.values())


def longest(call: Call) -> int:
    return max(max(tensor.shape) for tensor in call.tensors.values())


def sweep(tiny: Tiny, target: Any, model_type: str = "llama", seconds: float = 100) -> list[Any]:
    return sweep_shapes(KindWalk(tiny(model_type).skeleton, "fp32", {}), target, seconds=seconds)


def test_one_graph_for_all_sizes_is_dynamic(tiny: Tiny) -> None:
    target = Compiler(lambda call: len(call.tensors))
    found = sweep(tiny, target)
    assert {one.answer for one in found} == {"dynamic"}
    assert not any(one.recompiled for one in found)
    # A mask where there was none is another graph, and no recompilation.
    assert {one.graphs for one in found if one.role == "layer"} == {2}
    walk = KindWalk(tiny("llama").skeleton, "fp32", {})
    sequences, length = example_sizes(walk)
    assert target.varying == {(length, sequences)}
    sizes = {size for each in walk.weights.values() for value in each.values() for size in value.shape}
    assert not sizes & {sequences, length}


def test_a_graph_for_each_size_is_static(tiny: Tiny) -> None:
    found = sweep(tiny, Compiler(shapes_of))
    assert {one.answer for one in found} == {"static"}
    layer = next(one for one in found if one.role == "layer")
    assert {"length 1", "length 7", "length 127", "length 128", "batch 3"} <= set(layer.recompiled)
    assert any("length 129" in name for name in layer.untested)  # the model takes 128


def test_a_size_of_one_alone_is_still_dynamic(tiny: Tiny) -> None:
    found = sweep(tiny, Compiler(lambda call: 1 in next(iter(call.tensors.values())).shape[:2]))
    assert {one.answer for one in found} == {"dynamic"}
    layer = next(one for one in found if one.role == "layer")
    assert layer.recompiled == ("length 1",) or layer.recompiled == ["length 1"]


def test_failures_and_breaks_are_named(tiny: Tiny) -> None:
    target = Compiler(lambda call: 0, refuses=lambda call: longest(call) >= 127)
    target.breaks = ("Dynamic slicing",)
    found = sweep(tiny, target)
    assert {one.answer for one in found} == {"fallback"}
    layer = next(one for one in found if one.role == "layer")
    assert [(one.case, one.outcome, one.op) for one in layer.failures] == [
        ("length 127", "shape", "aten.mm.default"),
        ("length 128", "shape", "aten.mm.default"),
        ("ragged, padded by up to 100", "shape", "aten.mm.default"),
    ]
    assert {one.answer for one in sweep(tiny, Compiler(lambda call: 0, lambda call: True))} == {"failed"}
    late = sweep(tiny, Compiler(lambda call: 0), seconds=0)
    assert {one.answer for one in late} == {"unknown"}
    assert "length 7: no time was left" in late[0].untested


def test_experts_without_tokens_are_a_case_of_layers_with_experts(tiny: Tiny) -> None:
    idle = "one token, idle experts"
    target = Compiler(
        lambda call: 0, refuses=lambda call: next(iter(call.tensors.values())).shape[:2] == (1, 1)
    )
    found = sweep(tiny, target, "qwen3_moe")
    failed = {one.node for one in found if any(failure.case == idle for failure in one.failures)}
    assert failed == {"model.layers.1"}  # the first of them, after one dense layer


def test_padding_grows_with_the_row() -> None:
    assert Case("", 3, 4, padding=2).mask == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert Case("", 3, 4).mask is None


@pytest.mark.slow
def test_a_target_that_compiles_nothing_has_no_answers(tiny: Tiny) -> None:
    with open_target(TargetSpec.parse("eager@cpu/fp32"), timeout=60) as target:
        assert sweep(tiny, target) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", ["onnxruntime@cpu/fp32", "openvino@cpu/fp32?attn=eager", "inductor@cpu/fp32"]
)
def test_a_layer_is_compiled_once_for_all_lengths(tiny: Tiny, name: str) -> None:
    spec = TargetSpec.parse(name)
    walk = KindWalk(tiny("llama").skeleton, "fp32", spec.options)
    with open_target(spec, timeout=300) as target:
        found = sweep_shapes(walk, target, seconds=1000)
    layer = next(one for one in found if one.role == "layer")
    assert (layer.answer, list(layer.failures), list(layer.breaks)) == ("dynamic", [], [])
    assert set(layer.recompiled) <= {"length 1", "batch 1"}
