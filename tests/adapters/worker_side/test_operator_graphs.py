from __future__ import annotations

from typing import Any

import torch

from day0.adapters.targets.eager import EagerStack
from day0_worker.batches import OperatorJob
from day0_worker.operator_graphs import Build, run_as_graph

_FEW, _MANY = torch.arange(3.0), torch.arange(8.0)


def _job(index: int, op: str, *args: Any) -> OperatorJob:
    return OperatorJob(index, op, args, {})


def _counting(built: list[int]) -> Build:
    def build(many: Any, inputs: list[torch.Tensor]) -> Any:
        built.append(len(inputs))
        return lambda given: many(*given)

    return build


def test_calls_that_differ_in_values_share_an_operator_of_the_graph() -> None:
    jobs = [
        _job(4, "aten.neg.default", _FEW),
        _job(5, "aten.topk.default", _MANY, 2),
        _job(6, "aten.neg.default", _FEW + 10),
        _job(7, "aten.neg.default", _MANY),
        _job(8, "aten.neg.default", _FEW + 20),
        _job(9, "aten.topk.default", _MANY, 3),
        _job(10, "aten.topk.default", -_MANY, 2),
    ]
    built: list[int] = []
    stack = EagerStack("cpu", 1, "fp32", {})
    values = run_as_graph(stack, jobs, _counting(built))
    assert built == [4]  # neg of three, topk 2, neg of eight, topk 3
    assert stack.measure.spans == 3
    assert [values[place].tolist() for place in (0, 2, 4)] == [
        [0, -1, -2],
        [-10, -11, -12],
        [-20, -21, -22],
    ]
    assert values[3].tolist() == [-float(value) for value in range(8)]
    assert [values[place][0].tolist() for place in (1, 5, 6)] == [[7, 6], [7, 6, 5], [0, -1]]


def test_a_tensor_that_stands_in_two_arguments_is_not_the_same_call_as_two_tensors() -> None:
    left, right = torch.ones(2), torch.full((2,), 3.0)
    jobs = [_job(0, "aten.add.Tensor", left, left), _job(1, "aten.add.Tensor", left, right)]
    built: list[int] = []
    values = run_as_graph(EagerStack("cpu", 1, "fp32", {}), jobs, _counting(built))
    assert built == [3]
    assert [value.tolist() for value in values] == [[2, 2], [4, 4]]
