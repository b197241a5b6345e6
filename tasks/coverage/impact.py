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
        bytes: read and written: all distinct tensors and the output, as large as the largest of them where no
            formula gives it; a lookup counts what it gathers, not its table, and a grouped product the
            matrices that its rows can meet, one each at most.
        flops: 2 M N K for matrix products (grouped ones: each row meets one matrix), 2 B H L S (D + V) for
            attention (V values of a head), 2 N O (C / groups) K for convolutions (O places of the output, K
            of the kernel), one per element of the largest tensor otherwise.
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
    lookup = _LOOKUPS.get(name)
    gathered = lookup(call) if lookup is not None else None
    if gathered is not None:
        return Work(2.0 * gathered * widths[0], float(gathered))
    weights = [size * width for size, width in zip(sizes, widths, strict=True)]
    formula = _FORMULAS.get(name)
    if formula is not None and len(call.shapes) > 1:  # one tensor in two places counts as one
        flops, written = formula(call)
        width = BITS.get(call.result_dtype or call.dtypes[0], 64) / 8
        return Work(sum(weights) - _unmet(call, name) + written * width, flops)
    return Work(sum(weights) + max(weights), float(max(sizes)))


def _unmet(call: OperatorCall, name: str) -> float:
    """Bytes of a grouped product's matrices [E, K, N] that its rows [M, K] cannot meet."""
    rows, matrices = call.shapes[0], call.shapes[1]
    if name not in _GROUPED or len(matrices) != 3 or len(rows) != 2:
        return 0.0
    left = max(0, matrices[0] - rows[0])
    return left * math.prod(matrices[1:]) * BITS.get(call.dtypes[1], 64) / 8


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


def _embedded(call: OperatorCall) -> int | None:
    """Elements that indices, the last tensor, gather of a table [.., D]."""
    return math.prod(call.shapes[-1]) * (call.shapes[0][-1] if call.shapes[0] else 1)


def _indexed(call: OperatorCall) -> int | None:
    """Elements that a list of indices gathers of a table; None for masks, which do not say how many."""
    listed = call.args[1] if len(call.args) > 1 else None
    if not isinstance(listed, list | tuple):
        return None
    shapes = [_shape_of(item) for item in listed]
    if any(_dtype_of(item) == "bool" for item in listed):
        return None
    table = call.shapes[0]
    kept = [size for place, size in enumerate(table) if place >= len(shapes) or shapes[place] is None]
    given = [shape for shape in shapes if shape is not None]
    return math.prod(_broadcast(given)) * math.prod(kept)


def _selected(call: OperatorCall) -> int | None:
    """Elements that a row of indices gathers along one dimension."""
    place = _argument(call, 1, 0)
    if len(call.shapes) < 2 or not call.shapes[0] or not isinstance(place, int):
        return None
    rest = list(call.shapes[0])
    rest[place] = 1
    return math.prod(call.shapes[1]) * math.prod(rest)


def _gathered(call: OperatorCall) -> int | None:
    """Elements that indices of the output's shape gather."""
    return math.prod(call.shapes[1]) if len(call.shapes) > 1 else None


def _broadcast(shapes: Sequence[Sequence[int]]) -> Sequence[int]:
    """The shape that indices have together."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True)]


def _shape_of(argument: object) -> Sequence[int] | None:
    tensor = argument.get("tensor") if isinstance(argument, Mapping) else None
    return tensor["shape"] if isinstance(tensor, Mapping) else None


def _dtype_of(argument: object) -> str:
    tensor = argument.get("tensor") if isinstance(argument, Mapping) else None
    return str(tensor["dtype"]) if isinstance(tensor, Mapping) else ""


def _product(call: OperatorCall) -> tuple[float, int]:
    """[.., M, K] times [.., K, N], the last two tensors."""
    return _multiplied(call.shapes[-2], call.shapes[-1])


def _first_product(call: OperatorCall) -> tuple[float, int]:
    return _multiplied(call.shapes[0], call.shapes[1])


def _multiplied(left: Sequence[int], right: Sequence[int]) -> tuple[float, int]:
    columns = right[-1] if len(right) > 1 else 1
    return 2.0 * math.prod(left) * columns, math.prod(left[:-1]) * columns


def _attention(call: OperatorCall) -> tuple[float, int]:
    """Query [.., H, L, D], keys [.., H, S, D], values [.., H, S, V]: 2 L S D and 2 L S V for each head."""
    query, key = call.shapes[0], call.shapes[1]
    value = (_shape_of(call.args[2]) if len(call.args) > 2 else None) or key
    places = math.prod(query[:-1])
    return 2.0 * places * key[-2] * (query[-1] + value[-1]), places * value[-1]


def _convolution(call: OperatorCall) -> tuple[float, int]:
    """Input [N, C, ...], weight [O, C / groups, ...]: every place of the output meets one kernel.

    A transposed one ([C, O / groups, ...]) does the same work with input and output exchanged.
    """
    given, weight = call.shapes[0], call.shapes[1]
    kernel = weight[2:]
    stride, padding, dilation, more = (
        _spread(_argument(call, place, otherwise), len(kernel))
        for place, otherwise in ((3, 1), (4, 0), (5, 1), (7, 0))
    )
    if bool(_argument(call, 6, False)):
        places = [
            (size - 1) * step - 2 * pad + wide * (width - 1) + extra + 1
            for size, step, pad, wide, width, extra in zip(
                given[2:], stride, padding, dilation, kernel, more, strict=True
            )
        ]
        groups = int(str(_argument(call, 8, 1)))
        written = given[0] * weight[1] * groups * math.prod(places)
        return 2.0 * math.prod(given) * math.prod(weight[1:]), written
    places = [
        max(0, (size + 2 * pad - wide * (width - 1) - 1) // step + 1)
        for size, pad, wide, width, step in zip(given[2:], padding, dilation, kernel, stride, strict=True)
    ]
    written = given[0] * weight[0] * math.prod(places)
    return 2.0 * written * math.prod(weight[1:]), written


def _argument(call: OperatorCall, place: int, otherwise: object) -> object:
    return call.args[place] if len(call.args) > place else otherwise


def _spread(value: object, dimensions: int) -> list[int]:
    """One number for each dimension of the kernel, where the call gives one for all or one for each."""
    listed = [int(item) for item in value] if isinstance(value, list | tuple) else [int(str(value))]
    return listed * dimensions if len(listed) == 1 else listed


_GROUPED = ("_grouped_mm", "_scaled_grouped_mm")

_LOOKUPS: dict[str, Callable[[OperatorCall], int | None]] = {
    "embedding": _embedded,
    "index": _indexed,
    "index_select": _selected,
    "gather": _gathered,
}
"""Elements that an operator gathers of its first tensor; None where the call does not show them."""

_FORMULAS: dict[str, Callable[[OperatorCall], tuple[float, int]]] = {
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
"""Floating point operations, and elements of the output."""
