"""The noise arm's operators run again, on values that are put in the places of its own.

Tensors are known by their numbers in the trace (equal for equal memory), so that what an operator writes into
a part of another's memory is seen there, as in the run itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.target import ObservedOperator
from day0_worker.observed import flat
from day0_worker.operators import decode_call, resolve, with_strides
from day0_worker.stack import StackError

from ...operator_reference import formula_of, widen, widened

_REFUSED = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""What torch raises where a kernel does not take a dtype."""


class ReplayError(Exception):
    """An operator that ran once cannot be run again from what was noted of it."""


class Replay:
    """One run of a trace's operators.

    Args:
        operators: of a trace, with the numbers of their tensors.
        wide: whether everything is computed in fp64; else in the dtypes of the trace.
        keep: numbers of the tensors that are asked for at the end; others go with their last use.
    """

    def __init__(
        self, operators: Sequence[ObservedOperator], *, wide: bool, keep: Sequence[int] = ()
    ) -> None:
        self._operators, self._wide = operators, wide
        self._values: dict[int, Tensor] = {}
        last = {slot: place for place, one in enumerate(operators) for slot in one.slots}
        kept = set(keep)
        self._ends: dict[int, list[int]] = {}
        for slot, place in last.items():
            if slot not in kept:
                self._ends.setdefault(place, []).append(slot)

    def inputs(self, place: int) -> list[Tensor]:
        """What an operator is given: results of those before it, or what the trace had from outside.

        Raises:
            ReplayError: the values of one are not known.
        """
        operator = self._operators[place]
        return [
            self._value(slot, tensor) for slot, tensor in zip(operator.slots, operator.inputs, strict=False)
        ]

    def put(self, slot: int, value: Tensor) -> None:
        """Puts a value in a tensor's place, and so into all that share its memory."""
        known = self._values.get(slot)
        if known is None or known.shape != value.shape or not _writable(known):
            self._values[slot] = self._cast(value, known)
        else:
            known.copy_(value)

    def value(self, slot: int) -> Tensor | None:
        """The value of that number, where it is there."""
        return self._values.get(slot)

    def run(self, place: int) -> list[Any]:
        """Runs one operator and keeps what it gives.

        Returns:
            Its tensors and numbers in order.

        Raises:
            ReplayError: it does not run.
        """
        operator = self._operators[place]
        inputs = self.inputs(place)
        try:
            outputs = self._computed(operator, inputs)
        except (*_REFUSED, StackError, KeyError) as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ReplayError(f"{operator.call.op} cannot be run again: {text}") from error
        slots = operator.slots[len(operator.inputs) :]
        for slot, output in zip(slots, _tensors(outputs), strict=False):
            self._values[slot] = output
        return outputs

    def done(self, place: int) -> None:
        """Lets go of what no operator after this one needs."""
        for slot in self._ends.get(place, ()):
            self._values.pop(slot, None)

    def _value(self, slot: int, tensor: Tensor | None) -> Tensor:
        if slot not in self._values:
            if tensor is None:
                raise ReplayError("the values of a tensor were left out")
            # The trace's own contents stay as they are: two tensors of equal bytes share one.
            self._values[slot] = self._cast(tensor.clone(), None)
        return self._values[slot]

    def _cast(self, value: Tensor, like: Tensor | None) -> Tensor:
        if like is not None:
            return value.to(like.dtype, copy=True)
        return widen(value, "fp64") if self._wide else value

    def _computed(self, operator: ObservedOperator, inputs: Sequence[Tensor]) -> list[Any]:
        call = operator.call.model_dump(mode="json", include={"op", "args", "kwargs"})
        if not self._wide:
            return _called(call, inputs)
        formula = formula_of(operator.call.op)
        if formula:
            return [formula[-1](_fitted(call, inputs), inputs)]
        try:
            return _called(widened(call, "fp64"), inputs)
        except _REFUSED:
            # No kernel in fp64: the trace's own dtypes then are all there is.
            given = [
                value.to(own.dtype) if own is not None else value
                for value, own in zip(inputs, operator.inputs, strict=True)
            ]
            outputs = _called(call, given)
            return [widen(one, "fp64") if isinstance(one, Tensor) else one for one in outputs]


def _called(call: dict[str, Any], inputs: Sequence[Tensor]) -> list[Any]:
    args, kwargs = decode_call(_fitted(call, inputs), inputs)
    function = resolve(call["op"])
    drawing = torch.Tag.nondeterministic_seeded in function.tags
    with torch.no_grad(), torch.random.fork_rng(devices=()) if drawing else nullcontext():
        if drawing:
            torch.manual_seed(0)
        return list(flat(function(*args, **kwargs)))


def _fitted(value: Any, inputs: Sequence[Tensor]) -> Any:
    """The encoded call with the shapes and strides of these tensors, so that none is laid out anew."""
    if isinstance(value, list | tuple):
        return [_fitted(item, inputs) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"tensor"}:
        tensor = inputs[value["tensor"]["alias"]]
        return {"tensor": {**value["tensor"], "shape": list(tensor.shape), "stride": list(tensor.stride())}}
    return {key: _fitted(item, inputs) for key, item in value.items()}


def _tensors(outputs: Sequence[Any]) -> Iterator[Tensor]:
    return (one for one in outputs if isinstance(one, Tensor))


def _writable(tensor: Tensor) -> bool:
    """Whether no two of its elements are one in memory."""
    return not any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))


def laid_out(operator: ObservedOperator) -> list[Tensor]:
    """An operator's inputs in the strides in which it had them.

    Raises:
        ValueError: the values of one were left out.
    """
    facts = list(_facts([*operator.call.args, *operator.call.kwargs.values()]))
    strides = {one["alias"]: one["stride"] for one in facts}
    found = []
    for alias, tensor in enumerate(operator.inputs):
        if tensor is None:
            raise ValueError(f"the values of argument {alias} of {operator.call.op} were left out")
        found.append(with_strides(tensor, strides[alias]))
    return found


def _facts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _facts(item)
    elif isinstance(value, dict) and set(value) == {"tensor"}:
        yield value["tensor"]
