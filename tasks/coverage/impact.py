"""How much of the work an operator call stands for: bytes moved and floating point operations, estimated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.operator_call import OperatorCall

_VIEWS = frozenset(
    ["view", "_unsafe_view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand",
     "slice", "select", "split", "split_with_sizes", "detach", "alias", "as_strided", "unbind", "diagonal",
     "unfold", "view_as_real", "view_as_complex", "chunk"]
)  # fmt: skip
"""Operators that give another view of the same bytes: no work on a stack that knows strides."""

_STEPS = {"prefill": "prefill", "long_prefill": "prefill", "decode": "decode", "sampling": "decode"}
"""A token is either one of a prompt or one that is generated; sampling follows every decode step."""


@dataclass(frozen=True)
class Work:
    """Estimated work of one call.

    Attributes:
        bytes: read and written: all distinct tensors, and once more the largest of them for the output; a
            lookup counts what it gathers, not its table.
        flops: 2 M N K for matrix products (grouped ones: each row meets one matrix), 4 B H L S D for
            attention, 2 N O (C / groups) K for convolutions (O places of the output, K of the kernel), one
            per element of the largest tensor otherwise.
    """

    bytes: float
    flops: float


def is_view(op: str) -> bool:
    """Whether the operator only gives another view of the same bytes, without a kernel of its own."""
    return op.count(".") == 2 and op.split(".")[1] in _VIEWS


def work_of(call: OperatorCall) -> Work:
    """The work of one call of this signature."""
    name = call.op.split(".")[1] if call.op.count(".") == 2 else call.op
    if name in _VIEWS or not call.shapes:
        return Work(0.0, 0.0)
    sizes = [math.prod(shape) for shape in call.shapes]
    widths = [BITS.get(dtype, 64) / 8 for dtype in call.dtypes]
    if name == "embedding":
        row = call.shapes[0][-1] if call.shapes[0] else 1
        moved = 2.0 * sizes[-1] * row * widths[0]
        return Work(moved, float(sizes[-1] * row))
    total = sum(size * width for size, width in zip(sizes, widths, strict=True))
    largest = max(size * width for size, width in zip(sizes, widths, strict=True))
    formula = _FLOPS.get(name)
    if formula is not None and len(call.shapes) > 1:  # one tensor in two places counts as one
        return Work(total, formula(call))
    return Work(total + largest, float(max(sizes)))


def shares(
    calls: Iterable[OperatorCall], against: Iterable[OperatorCall] | None = None
) -> Mapping[str, float]:
    """Signature and phase -> its share of the work of one token, in [0, 1].

    A token of a prompt and a generated one count one half each, whatever their number: within a phase a call
    has the same share of one token's work as of the whole phase's. A short and a long prompt share the first
    half, so that what only long prompts do counts too. A share is the mean of the share of bytes and the
    share of operations, so that neither needs a machine's balance.

    Args:
        calls: to weigh.
        against: calls whose work counts as the whole; None: those that are weighed. Two ways to build a model
            differ in all they do, so what each leaves open is held against the same whole.

    Returns:
        A mapping whose keys are `share_key(call)`; against others' work a share may exceed 1.
    """
    listed = list(calls)
    totals: dict[str, Work] = {}
    for call in listed if against is None else against:
        phase, one = _timed(call.phase), work_of(call)
        before = totals.get(phase, Work(0.0, 0.0))
        totals[phase] = Work(before.bytes + one.bytes * call.count, before.flops + one.flops * call.count)
    steps = {_STEPS.get(phase, phase) for phase in totals}
    inside = {step: sum(_STEPS.get(phase, phase) == step for phase in totals) for step in steps}
    found: dict[str, float] = {}
    for call in listed:
        total, one = totals.get(_timed(call.phase), Work(0.0, 0.0)), work_of(call)
        by_bytes = one.bytes * call.count / total.bytes if total.bytes else 0.0
        by_flops = one.flops * call.count / total.flops if total.flops else 0.0
        weight = 1 / max(len(steps), 1) / inside.get(_STEPS.get(call.phase, call.phase), 1)
        found[share_key(call)] = (by_bytes + by_flops) / 2 * weight
    return found


def _timed(phase: str) -> str:
    """The phase whose work a call belongs to: sampling is a part of the decode step."""
    return "decode" if phase == "sampling" else phase


def share_key(call: OperatorCall) -> str:
    """Names one signature within one phase, on every device or one kind."""
    return f"{call.phase}:{call.branch}:{call.signature}"


def _product(call: OperatorCall) -> float:
    """[.., M, K] times [.., K, N], the last two tensors."""
    return _multiplied(call.shapes[-2], call.shapes[-1])


def _first_product(call: OperatorCall) -> float:
    return _multiplied(call.shapes[0], call.shapes[1])


def _multiplied(left: Sequence[int], right: Sequence[int]) -> float:
    return 2.0 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _attention(call: OperatorCall) -> float:
    """Query [.., H, L, D] against keys [.., H, S, D]: two products of 2 L S D for each head."""
    query, key = call.shapes[0], call.shapes[1]
    return 4.0 * math.prod(query) * key[-2]


def _convolution(call: OperatorCall) -> float:
    """Input [N, C, ...], weight [O, C / groups, ...]: every place of the output meets one kernel.

    A transposed one ([C, O / groups, ...]) does the same work with input and output exchanged.
    """
    given, weight = call.shapes[0], call.shapes[1]
    kernel = weight[2:]
    if bool(_argument(call, 6, False)):
        return 2.0 * math.prod(given) * math.prod(weight[1:])
    stride, padding, dilation = (
        _spread(_argument(call, place, otherwise), len(kernel))
        for place, otherwise in ((3, 1), (4, 0), (5, 1))
    )
    places = [
        max(0, (size + 2 * pad - wide * (width - 1) - 1) // step + 1)
        for size, pad, wide, width, step in zip(given[2:], padding, dilation, kernel, stride, strict=True)
    ]
    return 2.0 * given[0] * weight[0] * math.prod(places) * math.prod(weight[1:])


def _argument(call: OperatorCall, place: int, otherwise: object) -> object:
    return call.args[place] if len(call.args) > place else otherwise


def _spread(value: object, dimensions: int) -> list[int]:
    """One number for each dimension of the kernel, where the call gives one for all or one for each."""
    listed = [int(item) for item in value] if isinstance(value, list | tuple) else [int(str(value))]
    return listed * dimensions if len(listed) == 1 else listed


_FLOPS: dict[str, Callable[[OperatorCall], float]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _product,
    "baddbmm": _product,
    "mv": _product,
    "_grouped_mm": _first_product,
    "_scaled_mm": _first_product,
    "_scaled_grouped_mm": _first_product,
    "scaled_dot_product_attention": _attention,
    "convolution": _convolution,
}
