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

_STEPS = {"prefill": "prefill", "long_prefill": "long_prefill", "decode": "decode", "sampling": "decode"}
"""Sampling follows every decode step, so both are one."""


@dataclass(frozen=True)
class Work:
    """Estimated work of one call.

    Attributes:
        bytes: read and written: all distinct tensors, and once more the largest of them for the output; a
            lookup counts what it gathers, not its table.
        flops: 2 M N K for matrix products (grouped ones: each row meets one matrix), 4 B H L S D for
            attention, one per element of the largest tensor otherwise.
    """

    bytes: float
    flops: float


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
    if formula is not None:
        return Work(total, formula(call.shapes))
    return Work(total + largest, float(max(sizes)))


def shares(calls: Iterable[OperatorCall]) -> Mapping[str, float]:
    """Signature and phase -> its share of the whole work, in [0, 1].

    Prefill, long prefill and decode (with the sampling that follows it) count equally; within each, the share
    is the mean of the share of bytes and the share of operations, so that neither needs a machine's balance.

    Returns:
        A mapping whose keys are `share_key(call)`.
    """
    listed = list(calls)
    totals: dict[str, Work] = {}
    for call in listed:
        step, one = _STEPS.get(call.phase, call.phase), work_of(call)
        before = totals.get(step, Work(0.0, 0.0))
        totals[step] = Work(before.bytes + one.bytes * call.count, before.flops + one.flops * call.count)
    found: dict[str, float] = {}
    for call in listed:
        total, one = totals[_STEPS.get(call.phase, call.phase)], work_of(call)
        by_bytes = one.bytes * call.count / total.bytes if total.bytes else 0.0
        by_flops = one.flops * call.count / total.flops if total.flops else 0.0
        found[share_key(call)] = (by_bytes + by_flops) / 2 / len(totals)
    return found


def share_key(call: OperatorCall) -> str:
    """Names one signature within one phase."""
    return f"{call.phase}:{call.signature}"


_Shapes = Sequence[Sequence[int]]


def _product(shapes: _Shapes) -> float:
    """[.., M, K] times [.., K, N]."""
    left, right = shapes[-2], shapes[-1]
    return 2.0 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _first_product(shapes: _Shapes) -> float:
    return _product(shapes[:2])


def _attention(shapes: _Shapes) -> float:
    """Query [.., H, L, D] against keys [.., H, S, D]: two products of 2 L S D for each head."""
    query, key = shapes[0], shapes[1]
    return 4.0 * math.prod(query) * key[-2]


_FLOPS: dict[str, Callable[[_Shapes], float]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _product,
    "baddbmm": _product,
    "mv": _product,
    "_grouped_mm": _first_product,
    "_scaled_mm": _first_product,
    "scaled_dot_product_attention": _attention,
    "convolution": lambda shapes: 2.0 * math.prod(shapes[0]) * math.prod(shapes[1][1:]) * 1.0,
}
