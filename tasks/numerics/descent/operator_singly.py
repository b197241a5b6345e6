"""A module's operators given to the target one by one, for targets whose runs cannot be observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, ObservedOperator, Target
from day0_worker.trees import TreeError, decode

from ...operator_reference import NoReference, compute_reference, flat_outputs, why_values_differ
from ...outcomes import detail_of, outcome_of
from .operator_faults import Change, Suspect, difference
from .operator_replay import laid_out
from .operator_trace import Trace, aliases, with_attributes
from .operator_values import off

BATCH = 64
"""Operators that are sent together: an exporting stack makes one graph of them."""


def singly(noise: Trace, target: Target) -> tuple[list[Suspect], str]:
    """Every operator that the noise arm dispatched, with the tensors that it had, on the target.

    Args:
        noise: what it dispatched.
        target: that runs single operators.

    Returns:
        Those beyond noise in order, and why nothing could be tried; empty where it could.
    """
    if "op" not in target.describe().capabilities:
        return [], "the target runs no single operators"
    found: list[Suspect] = []
    jobs = list(_jobs(noise))
    for start in range(0, len(jobs), BATCH):
        part = jobs[start : start + BATCH]
        try:
            answers = target.run_ops([call for _, call, _ in part], [inputs for _, _, inputs in part])
        except (WorkerError, UnsupportedError) as error:
            return found, f"its operators cannot be tried one by one: {detail_of(error)}"
        for (place, call, inputs), answer in zip(part, answers, strict=True):
            suspect = _judged(noise.operators[place], place, call, inputs, answer)
            if suspect is not None:
                found.append(suspect)
    return found, ""


def _jobs(noise: Trace) -> Iterator[tuple[int, OperatorCall, Sequence[Tensor]]]:
    """Each distinct operator on each distinct input, once."""
    seen: set[Any] = set()
    for place, operator in enumerate(noise.operators):
        call = operator.call
        if aliases(call.op) or why_values_differ(call.op) or not operator.inputs:
            continue
        try:
            inputs = laid_out(operator)
        except ValueError:
            continue
        key = (
            call.signature,
            tuple((one.data_ptr(), one.dtype) for one in operator.inputs if one is not None),
        )
        if key not in seen:
            seen.add(key)
            yield place, with_attributes(call), inputs


def _judged(
    operator: ObservedOperator,
    place: int,
    call: OperatorCall,
    inputs: Sequence[Tensor],
    answer: Answer | WorkerError,
) -> Suspect | None:
    if isinstance(answer, WorkerError):
        return Suspect(call, f"alone it fails: {outcome_of(answer)}: {detail_of(answer)}", inputs)
    try:
        reference = compute_reference(call.model_dump(mode="json"), inputs)
        got = flat_outputs(decode(answer.outputs.tree, answer.outputs.tensors))
    except (NoReference, TreeError):
        return None
    own = reference.like if reference.like is not None else reference.values
    if len(got) != len(own):
        return Suspect(call, f"alone it gives {len(got)} results where {len(own)} are due", inputs)
    slots = iter(operator.slots[len(operator.inputs) :])
    said, changes = "", []
    for one, exact, form in zip(got, reference.values, own, strict=True):
        slot = next(slots, None) if isinstance(form, Tensor) else None
        why = off(one, exact, form, call=call, given=inputs[0])
        if why and slot is not None and isinstance(one, Tensor) and isinstance(exact, Tensor):
            changes.append(Change(place, True, slot, difference(one, exact)))
        said = said or why
    return Suspect(call, f"alone, on the reference's inputs: {said}", inputs, changes) if said else None
