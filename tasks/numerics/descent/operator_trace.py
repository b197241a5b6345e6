"""The operators that noise arm and target dispatch for one module, and which of them belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import ObservedOperator, Paused
from day0.adapters.models.encoding import attributes_of
from day0.adapters.targets.observation import observed_operators
from day0_worker.observed import Observer
from day0_worker.operators import resolve
from day0_worker.stack import StackError

from ...reference_arm import Arm, ArmError
from ..measures.values import float_tensors
from .fragments import STATE, Moment
from .part_runs import Part

_EVERYTHING = 1 << 62


@dataclass(frozen=True)
class Trace:
    """What the noise arm dispatched.

    Attributes:
        operators: in order, with the numbers of the tensors that they had.
        result: numbers of the result's floating tensors, in order.
    """

    operators: Sequence[ObservedOperator]
    result: Sequence[int]


@dataclass(frozen=True)
class Step:
    """Operators of both sides that stand at the same place.

    Attributes:
        target: index among the target's; None where it has none there.
        noise: index among the noise arm's; likewise.
    """

    target: int | None
    noise: int | None


def trace(part: Part, moment: Moment, arm: Arm) -> Trace:
    """Runs a part on an arm in the target's precision and notes its operators, with all their values.

    Bound: every tensor of the part in this moment, once.

    Raises:
        ArmError: its module raised, or what it dispatched cannot be noted.
    """
    try:
        for given in moment.earlier:
            arm.run(part.node, part.weights, given.lowered, state=moment.state)
        with Observer(_EVERYTHING, hold=True) as observer:
            output = arm.run(part.node, part.weights, moment.call.lowered, state=moment.state)
        result = [observer.slot(tensor) for tensor in float_tensors(output)]
        return Trace(observed_operators(observer.operators, observer.contents), result)
    except WorkerError as error:
        raise ArmError(error.message) from error
    finally:
        arm.modules.forget(STATE)


def trace_experts(part: Part, given: Paused, arm: Arm) -> Trace:
    """What an arm in the target's precision dispatches for experts that are too large to be loaded together.

    Args:
        part: the experts of a node.
        given: hidden states, ids and weights of some tokens.
        arm: whose operators are noted.

    Raises:
        ArmError: see `trace`.
    """
    assert part.stack is not None, "asked of handed-out experts only"
    assert part.home is not None, "asked of experts only"
    met = sorted(set(given.ids.reshape(-1).tolist()))
    stack = part.stack(met)
    ids = torch.searchsorted(torch.tensor(met), given.ids.contiguous())
    try:
        with Observer(_EVERYTHING, hold=True, outside=True) as observer:
            output = arm.run_experts(part.home, stack.lowered, given.hidden, ids, given.weights)
        return Trace(observed_operators(observer.operators, observer.contents), [observer.slot(output)])
    except WorkerError as error:
        raise ArmError(error.message) from error


def with_attributes(call: OperatorCall) -> OperatorCall:
    """The call with its attributes by name, where this torch knows the operator."""
    try:
        schema = resolve(call.op)._schema
    except StackError:
        return call
    return call.model_copy(update={"attributes": attributes_of(schema, list(call.args), call.kwargs)})


def aligned(target: Sequence[ObservedOperator], noise: Sequence[ObservedOperator]) -> list[Step]:
    """Both sequences in one order; operators of one name on tensors of the same shapes go together.

    Where they part, the target's come before the noise arm's.
    """
    ours, theirs = [_key(one) for one in noise], [_key(one) for one in target]
    if ours == theirs:
        return [Step(place, place) for place in range(len(ours))]
    matcher = SequenceMatcher(a=theirs, b=ours, autojunk=False)
    steps: list[Step] = []
    for tag, start, end, begin, finish in matcher.get_opcodes():
        if tag == "equal":
            steps += [Step(start + place, begin + place) for place in range(end - start)]
        else:
            steps += [Step(place, None) for place in range(start, end)]
            steps += [Step(None, place) for place in range(begin, finish)]
    return steps


def aliases(op: str) -> bool:
    """Whether an operator's result is its input's memory, seen in another way."""
    try:
        returns = resolve(op)._schema.returns
    except StackError:
        return False
    alias = [one.alias_info for one in returns]
    return bool(alias) and all(info is not None and not info.is_write for info in alias)


def hands_on(op: str) -> bool:
    """Whether an operator gives the values that it was given, in another place or order."""
    return op in _HANDED_ON or aliases(op)


_HANDED_ON = frozenset({"aten._unsafe_view.default", "aten.clone.default"})


def _key(operator: ObservedOperator) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Operators that may stand for each other; numbers among the arguments may differ."""
    return operator.call.op, tuple(tuple(shape) for shape in operator.call.shapes)
