"""Where along its operators the target leaves what its own inputs explain.

The noise arm's operators are run again, in fp64 and in the target's dtype, on what the target itself had:
after each operator the target's result takes the place of theirs. So each operator is judged on the very
inputs that the target gave it, and what an operator receives is held against what those before it gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Call, ObservedOperator
from day0_worker.stack import StackError

from ...operator_reference import NoReference, compute_reference, why_values_differ
from ..measures.values import float_tensors
from .operator_replay import Replay, ReplayError, laid_out
from .operator_trace import Step, Trace, aliases, aligned, hands_on, with_attributes
from .operator_values import off

MOST_SUSPECTS = 16
"""After so many the rest is left: the first that explains the module's error is sought, not all."""

_NAMED = 4


@dataclass(frozen=True)
class Change:
    """What a suspect adds to one of the noise arm's tensors.

    Attributes:
        place: of the operator, in the noise arm's order.
        after: whether the tensor is its result; else what it receives.
        slot: number of the tensor.
        delta: the target's value less the right one, fp64; where that is not finite, the target's value.
    """

    place: int
    after: bool
    slot: int
    delta: Tensor


@dataclass(frozen=True)
class Suspect:
    """An operator beyond noise.

    Attributes:
        call: the operator.
        why: what is wrong, in a clause.
        inputs: that the target gave it; None where they are not known.
        changes: its effect on the noise arm's run; empty where that cannot be told.
        own: whether its own result for these inputs is wrong; else what is around it.
    """

    call: OperatorCall
    why: str
    inputs: Sequence[Tensor] | None = None
    changes: Sequence[Change] = ()
    own: bool = True


@dataclass
class _State:
    own: Replay
    wide: Replay
    made_by: dict[int, int] = field(default_factory=dict)
    suspects: list[Suspect] = field(default_factory=list)


def suspects(
    target: Sequence[ObservedOperator], outputs: Call | None, noise: Trace
) -> tuple[list[Suspect], str]:
    """The operators beyond noise, in the order in which the target called them.

    Args:
        target: its operators.
        outputs: of the observed run; None where it raised.
        noise: the noise arm's.

    Returns:
        The suspects, and why the search ended early; empty where it did not.
    """
    steps = aligned(target, noise.operators)
    keep = tuple(noise.result)
    own, wide = (Replay(noise.operators, wide=wanted, keep=keep) for wanted in (False, True))
    state = _State(own, wide)
    search = _Search(target, noise, steps, state)
    try:
        for step in steps:
            search.take(step)
            if len(state.suspects) >= MOST_SUSPECTS:
                return state.suspects, f"the search ended after {MOST_SUSPECTS} suspects"
        if outputs is not None:
            search.finish(outputs)
    except ReplayError as error:
        return state.suspects, str(error)
    return state.suspects, ""


class _Search:
    def __init__(
        self, target: Sequence[ObservedOperator], noise: Trace, steps: Sequence[Step], state: _State
    ) -> None:
        self._target, self._noise, self._state = target, noise, state
        self._partner = {
            step.noise: step.target for step in steps if step.noise is not None and step.target is not None
        }
        self._unpaired = {step.target for step in steps if step.noise is None}

    def take(self, step: Step) -> None:
        if step.target is not None and step.noise is not None:
            self._both(step.target, step.noise)
        elif step.target is not None:
            self._alone(step.target)
        elif step.noise is not None:
            self._run(step.noise)
            self._end(step.noise)

    def finish(self, outputs: Call) -> None:
        """Holds the run's own result against what its last operators gave."""
        for slot, got in zip(self._noise.result, float_tensors(outputs), strict=False):
            own, exact = self._state.own.value(slot), self._state.wide.value(slot)
            if own is None or exact is None:
                continue
            why = off(got, exact, own)
            if why:
                end = len(self._noise.operators)
                self._handed(slot, (got, exact, own), end, len(self._target), why)

    def _both(self, at: int, place: int) -> None:
        theirs, ours = self._target[at], self._noise.operators[place]
        given = zip(
            ours.slots,
            theirs.inputs,
            self._state.wide.inputs(place),
            self._state.own.inputs(place),
            strict=False,
        )
        for slot, got, exact, own in given:
            if got is None:
                continue
            why = off(got, exact, own)
            if why:
                self._handed(slot, (got, exact, own), place, at, why)
            self._put(slot, got)
        exact_outputs, own_outputs = self._run(place)
        if theirs.outputs is None:
            self._suspect(theirs, "it raises")
        elif not why_values_differ(theirs.call.op):
            self._compare(at, place, exact_outputs, own_outputs)
        self._rebase(theirs, ours)
        self._end(place)

    def _compare(self, at: int, place: int, exact: Sequence[Any], own: Sequence[Any]) -> None:
        theirs, ours = self._target[at], self._noise.operators[place]
        outputs = theirs.outputs or ()
        if len(outputs) != len(own):
            self._suspect(theirs, f"it gives {len(outputs)} results where {len(own)} are due")
            return
        slots = iter(ours.slots[len(ours.inputs) :])
        changes, said = [], ""
        given = theirs.inputs[0] if theirs.inputs else None
        for got, due, form in zip(outputs, exact, own, strict=True):
            slot = next(slots, None) if isinstance(form, Tensor) else None
            if got is None:
                continue
            why = off(got, due, form, call=ours.call, given=given)
            if why and slot is not None and isinstance(got, Tensor):
                changes.append(Change(place, True, slot, difference(got, due)))
            said = said or why
        if said:
            self._suspect(theirs, self._reason(theirs, ours, said), changes)

    def _reason(self, theirs: ObservedOperator, ours: ObservedOperator, said: str) -> str:
        told = differing(theirs.call, ours.call)
        if not told:
            return f"on the inputs that the target gave it: {said}"
        return f"it is called with {told}: {said}"

    def _alone(self, at: int) -> None:
        """An operator that the noise arm does not call: judged by itself."""
        theirs = self._target[at]
        if theirs.outputs is None:
            self._state.suspects.append(Suspect(with_attributes(theirs.call), "it raises"))
            return
        why = isolated(theirs.call, theirs)
        if why:
            call = with_attributes(theirs.call)
            said = f"on the inputs that the target gave it: {why}"
            self._state.suspects.append(Suspect(call, said, _inputs(theirs)))

    def _handed(
        self, slot: int, values: tuple[Tensor, Tensor, Tensor], place: int, at: int, why: str
    ) -> None:
        """A tensor that is not what the operators before gave.

        Whoever made it is named, unless what changed it belongs to the operator that receives it: a cast of
        its own, or operators that only the target calls and that run in the receiver's module alone.

        Args:
            slot: of the tensor.
            values: the target's; what it should be, in fp64 and in its own dtype.
            place: of the receiver in the noise arm's order; one past the last for the module's result.
            at: of the receiver in the target's order; likewise.
            why: what is wrong with it.
        """
        got, exact, own = values
        operators = self._noise.operators
        maker, end = self._maker(slot), place >= len(operators)
        change = Change(len(operators) - 1 if end else place, end, slot, difference(got, exact))
        between = self._between(maker, at)
        words = _names([self._target[one].call.op for one in between])
        receiver = None if end else operators[place]
        if maker is None or (
            receiver is not None and self._takes_it_wrongly(got, own, maker, receiver, between)
        ):
            blamed, partner = operators[min(place, len(operators) - 1)], min(at, len(self._target) - 1)
            said = f"it receives something else than the reference gives it: {why}"
            if got.dtype != own.dtype:
                said = f"it receives {got.dtype} where {own.dtype} is due: {why}".replace("torch.", "")
            elif words:
                said = f"for it the target calls {words}: {why}"
        else:
            blamed, partner = operators[maker], self._partner.get(maker, -1)
            taker = "the module's result" if receiver is None else f"what {receiver.call.op} receives"
            said = f"{taker} is not what it gave: {why}"
            if partner < 0:
                said = f"in its place the target calls {words or 'nothing'}: {said}"
            elif words:
                said = f"after it the target calls {words}: {said}"
        inputs = _inputs(self._target[partner]) if partner >= 0 else None
        self._state.suspects.append(Suspect(with_attributes(blamed.call), said, inputs, [change], own=False))

    def _takes_it_wrongly(
        self,
        got: Tensor,
        own: Tensor,
        maker: int | None,
        receiver: ObservedOperator,
        between: Sequence[int],
    ) -> bool:
        if maker is None:
            return True
        if got.dtype != own.dtype and torch.equal(own.to(got.dtype), got):
            return True
        made_in = self._noise.operators[maker].call.module
        modules = {self._target[one].call.module for one in between}
        return modules == {receiver.call.module} and receiver.call.module != made_in

    def _maker(self, slot: int) -> int | None:
        """The operator whose result the tensor is, past those that only hand values on."""
        place = self._state.made_by.get(slot)
        while place is not None and hands_on(self._noise.operators[place].call.op):
            slots = self._noise.operators[place].slots
            before = self._state.made_by.get(slots[0]) if slots else None
            if before is None or before >= place:
                return place
            place = before
        return place

    def _between(self, maker: int | None, at: int) -> list[int]:
        """What only the target calls from one operator on to the one at a place of its own order."""
        paired = [self._partner[place] for place in self._partner if maker is None or place <= maker]
        start = max(paired, default=-1) if maker is not None else at - 1
        return [one for one in range(start + 1, at) if one in self._unpaired]

    def _run(self, place: int) -> tuple[list[Any], list[Any]]:
        exact, own = self._state.wide.run(place), self._state.own.run(place)
        operator = self._noise.operators[place]
        for slot in operator.slots[len(operator.inputs) :]:
            self._state.made_by[slot] = place
        return exact, own

    def _rebase(self, theirs: ObservedOperator, ours: ObservedOperator) -> None:
        if aliases(ours.call.op) or theirs.outputs is None:
            return
        tensors = (one for one in theirs.outputs if one is None or isinstance(one, Tensor))
        for slot, got in zip(ours.slots[len(ours.inputs) :], tensors, strict=False):
            if got is not None:
                self._put(slot, got)

    def _put(self, slot: int, value: Tensor) -> None:
        for replay in (self._state.own, self._state.wide):
            known = replay.value(slot)
            if known is None or known.shape == value.shape:
                replay.put(slot, value)

    def _end(self, place: int) -> None:
        self._state.own.done(place)
        self._state.wide.done(place)

    def _suspect(self, theirs: ObservedOperator, why: str, changes: Sequence[Change] = ()) -> None:
        self._state.suspects.append(Suspect(with_attributes(theirs.call), why, _inputs(theirs), changes))


def isolated(call: OperatorCall, operator: ObservedOperator) -> str:
    """What is wrong with an operator's own result for its inputs; empty where nothing can be said."""
    if operator.outputs is None:
        return ""
    try:
        if why_values_differ(call.op):
            return ""
        tensors = laid_out(operator)
        reference = compute_reference(call.model_dump(mode="json"), tensors)
    except (NoReference, StackError, ValueError):
        return ""
    own = reference.like if reference.like is not None else reference.values
    named = with_attributes(call)
    given = tensors[0] if tensors else None
    if len(own) != len(operator.outputs):
        return f"it gives {len(operator.outputs)} results where {len(own)} are due"
    for got, due, form in zip(operator.outputs, reference.values, own, strict=True):
        why = "" if got is None else off(got, due, form, call=named, given=given)
        if why:
            return why
    return ""


def differing(theirs: OperatorCall, ours: OperatorCall) -> str:
    """Arguments that are no tensors and differ: `eps 1e-05 where the reference has 1e-06`."""
    one, other = with_attributes(theirs).attributes, with_attributes(ours).attributes
    told = [
        f"{name} {_plain(one.get(name))} where the reference has {_plain(other.get(name))}"
        for name in (*other, *(name for name in one if name not in other))
        if one.get(name) != other.get(name)
    ]
    return ", ".join(told)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" and more" if len(names) > _NAMED else "")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        return str(next(iter(value.values())))
    return str(value)


def _inputs(operator: ObservedOperator) -> Sequence[Tensor] | None:
    try:
        return laid_out(operator)
    except ValueError:
        return None


def difference(got: Tensor, exact: Tensor) -> Tensor:
    """The target's value less the right one in fp64; where it is not finite, the target's value."""
    wide = got.to(torch.complex128 if got.is_complex() else torch.float64)
    if got.shape != exact.shape:
        return wide
    return torch.where(torch.isfinite(wide), wide - exact.to(wide.dtype), wide)
