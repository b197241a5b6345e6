from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from day0.adapters.base.errors import RemoteError, WorkerCrashed, WorkerError, WorkerTimeout
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.batch import ask_in_batches, in_work
from day0.adapters.targets.open import open_target
from day0_worker.trees import decode

UNARY = ("neg", "exp", "sin", "silu", "tanh")


def operator(op: str, *shapes: list[int]) -> OperatorCall:
    strides = [list(torch.empty(shape).stride()) for shape in shapes]
    facts = [
        {"dtype": "fp32", "shape": shape, "stride": stride, "alias": alias}
        for alias, (shape, stride) in enumerate(zip(shapes, strides, strict=True))
    ]
    args = [{"tensor": fact} for fact in facts]
    return OperatorCall(op=op, args=args, dtypes=["fp32"] * len(shapes), shapes=shapes)


CALLS = [operator(f"aten.{name}.default", [3, 4]) for name in UNARY]


def inputs_of(calls: Sequence[OperatorCall]) -> list[list[torch.Tensor]]:
    return [[torch.rand(list(shape)) for shape in call.shapes] for call in calls]


def check(calls: Sequence[OperatorCall], inputs: list[list[torch.Tensor]], answers: Sequence[object]) -> None:
    """Every answer that is none of an error is what torch computes."""
    for call, tensors, answer in zip(calls, inputs, answers, strict=True):
        if isinstance(answer, Answer):
            got = decode(answer.outputs.tree, answer.outputs.tensors)
            _, name, overload = call.op.split(".")
            expected = getattr(getattr(torch.ops.aten, name), overload)(*tensors)
            assert torch.allclose(got, expected, atol=1e-6), call.op


def errors(answers: Sequence[object]) -> dict[int, type]:
    return {place: type(answer) for place, answer in enumerate(answers) if isinstance(answer, Exception)}


def test_one_that_fails_leaves_the_others_right() -> None:
    calls = [*CALLS[:2], operator("aten.mm.default", [3, 4], [3, 4]), operator("aten.nowhere.default", [2])]
    calls += CALLS[2:]
    inputs = inputs_of(calls)
    with open_target(TargetSpec.parse("eager@cpu/fp32"), timeout=60) as target:
        answers = target.run_ops(calls, inputs)
        assert target.starts == 1
        assert target.run_ops([], []) == []
    assert errors(answers) == {2: RemoteError, 3: RemoteError}
    assert [answer.kind for answer in answers if isinstance(answer, RemoteError)] == [
        "shape",
        "missing_operator",
    ]
    check(calls, inputs, answers)


@pytest.mark.usefixtures("faulty_stack")
@pytest.mark.parametrize(
    ("fault", "kind"), [("segfault", WorkerCrashed), ("hang_holding_the_lock", WorkerTimeout)]
)
def test_a_worker_that_dies_of_one_is_blamed_on_that_one(fault: str, kind: type) -> None:
    spec = TargetSpec.parse(f"faulty@cpu/fp32?verb=run_op&op=aten.sin.default&fault={fault}")
    inputs = inputs_of(CALLS)
    with open_target(spec, timeout=60) as target:
        target.describe()
        target.timeout = 3
        answers = target.run_ops(CALLS, inputs)
        # The first, one for the guilty operator alone and one for the rest.
        assert target.starts <= 3
    assert errors(answers) == {2: kind}
    check(CALLS, inputs, answers)


def test_without_a_word_of_what_was_running_halves_find_it() -> None:
    asked: list[list[int]] = []

    def many(places: Sequence[int]) -> dict[int, Answer | WorkerError]:
        asked.append(list(places))
        if 5 in places:
            raise WorkerCrashed("gone")
        return {place: RemoteError(str(place), kind="shape", type_name="") for place in places}

    def one(place: int) -> Answer:
        if place == 5:
            raise WorkerCrashed("gone alone")
        raise RemoteError("alone", kind="shape", type_name="")

    answers = ask_in_batches(8, many, one, lambda: ["nothing to the point"])
    assert errors(answers) == {place: RemoteError for place in range(8)} | {5: WorkerCrashed}
    assert asked == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7]]


def test_what_was_running_is_the_last_that_the_log_names() -> None:
    log = [
        "day0: running operators 0 1 2: aten.mm.default",
        "day0: running operators 1: aten.mm.default",
        "x",
    ]
    assert in_work(log) == [1]
    assert in_work(["x"]) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "inductor"])
def test_a_graph_of_many_is_cut_down_to_what_fails(name: str) -> None:
    calls = [*CALLS, operator("aten.mm.default", [3, 4], [5, 4]), operator("aten.mm.default", [3, 4], [4, 2])]
    calls += [operator("aten.nowhere.default", [2]), operator("aten.split.Tensor", [3, 4])]
    calls[-1] = calls[-1].model_copy(update={"args": [*calls[-1].args, 2]})
    inputs = inputs_of(calls)
    with open_target(TargetSpec.parse(f"{name}@cpu/fp32"), timeout=200) as target:
        answers = target.run_ops(calls, inputs)
    assert errors(answers) == {5: RemoteError, 7: RemoteError}
    check(calls[:5], inputs[:5], answers[:5])
    check(calls[6:7], inputs[6:7], answers[6:7])
    last = answers[-1]
    assert isinstance(last, Answer)
    parts = decode(last.outputs.tree, last.outputs.tensors)
    assert [list(part.shape) for part in parts] == [[2, 4], [1, 4]]
    expected = torch.split(inputs[-1][0], 2)
    assert all(torch.equal(got, part) for got, part in zip(parts, expected, strict=True))
