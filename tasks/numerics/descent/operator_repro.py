"""A script that shows an operator's error on the target's device, with the inputs that the model gave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Target
from day0.adapters.models.encoding import Arguments
from day0_worker.operators import decode_call, resolve
from day0_worker.stack import StackError
from day0_worker.trees import decode

from ...operator_reference import NoReference, compute_reference, flat_outputs, why_values_differ
from ...operator_runners import bare
from ...operator_script import Shows, inlined, operator_script, way_of
from .operator_faults import Suspect
from .operator_judge_text import by_noise
from .operator_trace import with_attributes
from .operator_values import off

INLINED_BYTES = 64 * 2**10
"""Bytes of real inputs that stand in a script: some 80 kB of text, which an issue tracker still takes."""
_ROWS = 16
"""Tokens that are kept of a pointwise operator's inputs: enough to see a mean gain."""


def repro(suspect: Suspect, target: Target, where: str) -> str:
    """The script; empty where the operator alone is right on the target, or nothing can show it.

    Args:
        suspect: an operator beyond noise.
        target: asked once more for the operator alone, so that no script is handed out that shows nothing.
        where: module that calls it.
    """
    if suspect.inputs is None or not _decided(suspect.call.op):
        return ""
    description = target.describe()
    for call, tensors, note in _candidates(suspect.call, suspect.inputs):
        shown = _shows(call, tensors, target) if "op" in description.capabilities else suspect.own
        if not shown:
            continue
        spec = target.spec
        shows = Shows(
            call=call,
            inputs=inlined(tensors) if note != _DRAWN else _drawing(suspect.inputs),
            title=f"{call.op} as {where} calls it ({note}): wrong on {spec.stack}@{spec.device}.",
            status="wrong",
            judge=by_noise(),
        )
        return operator_script(shows, spec, way_of(spec, description))
    return ""


def _decided(op: str) -> bool:
    """Whether this torch has the operator and two right runs of it give the same values."""
    try:
        return not why_values_differ(op)
    except StackError:
        return False


_REAL, _CUT = "the model's own inputs", "some tokens of the model's own inputs"
_DRAWN = "inputs drawn at random in the scale of the model's own"


def _candidates(
    call: OperatorCall, tensors: Sequence[Tensor]
) -> Iterator[tuple[OperatorCall, Sequence[Tensor], str]]:
    if _bytes(tensors) <= INLINED_BYTES:
        yield call, tensors, _REAL
        return
    cut = _cut(call, tensors)
    if cut is not None and _bytes(cut[1]) <= INLINED_BYTES:
        yield *cut, _CUT
    if not any(tensor.is_complex() or tensor.dtype == torch.bool for tensor in tensors):
        yield call, [drawn(*_recipe(tensor, place)) for place, tensor in enumerate(tensors)], _DRAWN


def _shows(call: OperatorCall, tensors: Sequence[Tensor], target: Target) -> bool:
    try:
        reference = compute_reference(call.model_dump(mode="json"), tensors)
        answer = target.run_op(call, tensors)
        got = flat_outputs(decode(answer.outputs.tree, answer.outputs.tensors))
    except (WorkerError, UnsupportedError):
        return True  # it fails alone as well
    except NoReference:
        return False
    own = reference.like if reference.like is not None else reference.values
    if len(got) != len(own):
        return True
    given = tensors[0] if tensors else None
    triples = zip(got, reference.values, own, strict=True)
    return any(off(one, exact, form, call=call, given=given) for one, exact, form in triples)


def _cut(call: OperatorCall, tensors: Sequence[Tensor]) -> tuple[OperatorCall, Sequence[Tensor]] | None:
    """A pointwise call on its first tokens; None for others, and where shapes do not fit."""
    try:
        pointwise = torch.Tag.pointwise in resolve(call.op).tags
    except StackError:
        return None
    if not pointwise or not tensors:
        return None
    largest = max(tensors, key=lambda one: one.numel())
    dim = next((place for place, size in enumerate(largest.shape[:-1]) if size > _ROWS), None)
    if dim is None:
        return None
    back = largest.dim() - dim
    kept = [
        one.narrow(one.dim() - back, 0, _ROWS).contiguous()
        if one.dim() >= back and one.shape[one.dim() - back] == largest.shape[dim]
        else one
        for one in tensors
    ]
    args, kwargs = decode_call(call.model_dump(mode="json"), [one.clone() for one in tensors])
    places = {id(one): small for one, small in zip(_found(args, kwargs), kept, strict=False)}
    if len(places) != len(kept):
        return None

    def smaller(value: object) -> object:
        return places.get(id(value), value) if isinstance(value, Tensor) else value

    small = Arguments([smaller(one) for one in args], {name: smaller(one) for name, one in kwargs.items()})
    return with_attributes(small.call(call.op, module=call.module, phase=call.phase)), kept


def _found(args: Sequence[object], kwargs: dict[str, object]) -> list[Tensor]:
    """Tensors among plain arguments in order of their aliases; pointwise operators take no lists of them."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and all(value is not known for known in found):
            found.append(value)
    return found


def drawn(
    dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], low: float, high: float, seed: int
) -> Tensor:
    """Normal numbers of mean `low` and spread `high`; whole numbers from `low` to `high`."""
    source = torch.Generator().manual_seed(seed)
    made = torch.empty_strided(shape, stride, dtype=dtype)
    if not dtype.is_floating_point:
        return made.copy_(torch.randint(int(low), int(high) + 1, shape, generator=source))
    return made.copy_(torch.randn(shape, generator=source) * high + low)


def _recipe(tensor: Tensor, seed: int) -> tuple[torch.dtype, list[int], list[int], float, float, int]:
    """Arguments of `drawn` for the tensor's scale."""
    stride = tensor.stride() if _dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
    low, high = _scale(tensor)
    return tensor.dtype, list(tensor.shape), list(stride), low, high, seed


def _scale(tensor: Tensor) -> tuple[float, float]:
    if not tensor.numel():
        return 0.0, 0.0
    if not tensor.is_floating_point():
        return float(tensor.min()), float(tensor.max())
    finite = tensor.double()[torch.isfinite(tensor)]
    if not finite.numel():
        return 0.0, 1.0
    return float(finite.mean()), float(finite.std()) if finite.numel() > 1 else 0.0


def _dense(tensor: Tensor) -> bool:
    """Whether its elements fill its memory, each once."""
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return extent == tensor.numel() and 0 not in tensor.stride()


def _drawing(tensors: Sequence[Tensor]) -> str:
    """Python that draws the tensors as `drawn` does."""
    lines = [
        "# Drawn at random in the scale of the model's own inputs: equal seeds give equal values.",
        bare(drawn),
        "",
    ]
    for place, tensor in enumerate(tensors):
        lines.append(f"T{place} = drawn({', '.join(map(repr, _recipe(tensor, place)))})")
    return "\n".join(lines)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)
