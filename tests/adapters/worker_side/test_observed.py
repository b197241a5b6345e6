"""What an observed run notes: operators, modules, tensors once, and nothing that changes the result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.target import ObservedOperator
from day0.adapters.targets.observation import as_observation, observed_operators
from day0_worker.observed import Observer

GENEROUS = 2**20


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 4, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        made = self.inner(value)
        made[:, :2].mul_(2.0)
        return torch.nn.functional.silu(made.transpose(0, 1)) + 1.5


def observed(limit: int = GENEROUS, hold: bool = False) -> tuple[Observer, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    block, value = Block().eval(), torch.randn(5, 6)
    with torch.no_grad():
        plain = block(value)
        with Observer(limit, hold=hold) as observer:
            seen = block(value)
    return observer, plain, seen


def operators(observer: Observer) -> list[ObservedOperator]:
    return observed_operators(observer.operators, observer.contents)


def test_observing_changes_nothing_and_names_operators_with_their_modules() -> None:
    observer, plain, seen = observed()
    assert torch.equal(plain, seen)
    names = [(one.call.op, one.call.module) for one in operators(observer)]
    assert ("aten.mm.default", "inner") in names
    assert ("aten.silu.default", "") in names
    assert names[-1] == ("aten.add.Tensor", "")
    assert operators(observer)[-1].call.args[1] == 1.5


def test_tensors_come_back_as_they_were_when_the_operator_ran() -> None:
    observer, plain, _ = observed()
    found = {one.call.op: one for one in operators(observer)}
    product, scaled = found["aten.mm.default"], found["aten.mul_.Tensor"]
    assert product.outputs is not None
    assert scaled.outputs is not None
    # Changed in place later, and noted before.
    assert torch.equal(scaled.inputs[0], product.outputs[0][:, :2])  # type: ignore[arg-type]  # it is a tensor
    assert torch.equal(scaled.outputs[0], 2 * product.outputs[0][:, :2])
    last = operators(observer)[-1].outputs
    assert last is not None
    assert torch.equal(last[0], plain)
    silu = found["aten.silu.default"]
    assert silu.inputs[0] is not None
    assert silu.inputs[0].stride() == (1, 4)  # a transposed tensor crosses as it lies


def test_what_is_handed_on_unchanged_is_kept_once() -> None:
    observer, _, _ = observed()
    entries = {entry["op"]: entry for entry in observer.operators}
    silu, added = entries["aten.silu.default"], entries["aten.add.Tensor"]
    assert silu["outputs"][0]["name"] == added["inputs"][0]["name"]
    moved = entries["aten.transpose.int"]
    assert moved["inputs"][0]["name"] == moved["outputs"][0]["name"]


def test_slots_tell_the_same_memory() -> None:
    observer, _, seen = observed(hold=True)
    found = operators(observer)
    by_name = {one.call.op: one for one in found}
    silu, added = by_name["aten.silu.default"], by_name["aten.add.Tensor"]
    assert silu.slots[1] == added.slots[0]
    scaled = by_name["aten.mul_.Tensor"]
    assert scaled.slots[0] == scaled.slots[-1]
    assert observer.slot(seen.detach()) == added.slots[-1]


def test_beyond_the_limit_values_are_left_out_and_counted() -> None:
    observer, plain, seen = observed(limit=100)
    assert torch.equal(plain, seen)
    assert observer.left_out > 0
    assert sum(one.numel() * one.element_size() for one in observer.contents.values()) <= 100
    assert len(operators(observer)) == len(operators(observed()[0]))
    assert any(None in one.inputs for one in operators(observer))


def test_an_operator_that_raises_is_the_last_and_has_no_result() -> None:
    class Raising(torch.nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return torch.mm(value.neg(), value)

    observer = Observer(GENEROUS)
    with pytest.raises(RuntimeError), observer:
        Raising()(torch.ones(2, 3))
    assert [(one.call.op, one.outputs is None) for one in operators(observer)] == [
        ("aten.neg.default", False), ("aten.mm.default", True),
    ]  # fmt: skip


def test_operators_outside_of_modules_count_only_when_asked_for() -> None:
    for outside, count in ((False, 0), (True, 1)):
        with Observer(GENEROUS, outside=outside) as observer:
            torch.ones(3).neg()
        assert [entry["op"] for entry in observer.operators].count("aten.neg.default") == count


def entry(**changes: Any) -> dict[str, Any]:
    noted = {"dtype": "fp32", "shape": [2], "stride": [1], "name": "c0", "layout": [1]}
    return {"op": "aten.neg.default", "module": "", "args": [], "kwargs": {}, "inputs": [noted | changes]}


@pytest.mark.parametrize(
    "changes",
    [{"name": "c9"}, {"shape": [99]}, {"layout": [-1]}, {"layout": []}, {"shape": "x"}, {"dtype": 3}],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    contents = {"c0": torch.ones(2)}
    assert len(observed_operators([entry()], contents)) == 1
    with pytest.raises(WorkerError, match="malformed"):
        observed_operators([entry(**changes)], contents)


def test_an_answer_without_operators_is_refused() -> None:
    with pytest.raises(WorkerError, match="no operators"):
        as_observation({"tree": None}, {})
