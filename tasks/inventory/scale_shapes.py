"""Which shapes a scale may have beside a weight of a given shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]
Fits = Callable[[Shape], str]
"""Says of a side tensor's shape which one was expected; an empty text where it fits."""


@dataclass(frozen=True)
class Need:
    """A side tensor that a weight needs.

    Attributes:
        names: patterns under which it may stand, the most usual first.
        what: `scale`, `second-level scale`, `zero point`, `shape`, `activation scale`, ...
        fits: holds its shape against the weight's.
        wanted: severity where it is missing: `error`, `warning`, or empty where it may be left out.
        unread: patterns under which it may stand and no loader of the format looks for it.
    """

    names: Sequence[str]
    what: str
    fits: Fits
    wanted: str = ""
    unread: Sequence[str] = ()


def ceil_div(size: int, block: int) -> int:
    """Blocks of a length, the last one possibly cut short: 576 rows by 128 are 5."""
    return -(-size // block) if block else 0


def any_shape(_: Shape) -> str:
    """Every shape fits."""
    return ""


def same_shape(expected: Shape) -> Fits:
    """Exactly this shape."""
    return lambda shape: "" if tuple(shape) == tuple(expected) else str(list(expected))


def one_of(*expected: Shape) -> Fits:
    """One of these shapes; the first is the usual one."""
    return lambda shape: "" if tuple(shape) in expected else str(list(expected[0]))


def whole_shape(expected: Shape) -> Fits:
    """This shape, or one of as many elements."""
    return lambda shape: "" if prod(shape) == prod(expected) else str(list(expected))


def one_or_leading(weight: Shape) -> Fits:
    """One value, or one for each of the leading dimensions (experts) or fused halves of the weight."""
    lead = prod(weight[:-2])

    def fits(shape: Shape) -> str:
        number = prod(shape)
        fine = number == 1 or (len(weight) > 2 and number in (lead, 2 * lead))
        return "" if fine else "one value" if len(weight) == 2 else f"one value or [{lead}]"

    return fits


def normalised(scale: Shape, rank: int) -> Shape:
    """Modelopt keeps block scales as `[..., rows, 1, columns, 1]`: the ones in between are taken out."""
    if len(scale) == rank + 2 and scale[-1] == 1 and scale[-3] == 1:
        return (*scale[:-3], scale[-2])
    return scale


def block_of_scale(
    weight: Shape, scale: Shape, declared: tuple[int, int] | None
) -> tuple[str, int | list[int]]:
    """`fp8_tensor`, `fp8_channel` or `fp8_block` with its block, from the shapes.

    Args:
        weight: logical shape, at least two dimensions.
        scale: shape of its scale.
        declared: block by the config; it holds where it explains the shape.
    """
    scale = normalised(scale, len(weight))
    rows, columns = weight[-2:]
    lead = weight[:-2]
    if declared and scale[-2:] == (ceil_div(rows, declared[0]), ceil_div(columns, declared[1])):
        return "fp8_block", list(declared)
    if prod(scale) == 1 or scale in (lead, (*lead, 1), (*lead, 1, 1)):
        return "fp8_tensor", 0
    if scale in ((*lead, rows), (*lead, rows, 1), (*lead, 1, columns)) and rows > 1:
        return "fp8_channel", 0
    if len(scale) < 2:
        return "fp8_tensor", 0
    high, wide = scale[-2:]
    return "fp8_block", [_block(rows, high), _block(columns, wide)]


def _block(size: int, number: int) -> int:
    """Block lengths are powers of two; a last block cut short makes the quotient smaller than the block."""
    quotient = ceil_div(size, number)
    return 1 << (quotient - 1).bit_length() if quotient else 0


def floating_scale(weight: Shape, block: tuple[int, int] | None, *, transposed: bool = False) -> Fits:
    """One scale a tensor, a row, a group of a row, or a block of rows and columns.

    Args:
        weight: logical shape, at least two dimensions.
        block: as declared; a scale of two dimensions then has exactly its blocks.
        transposed: whether the outputs may be the last dimension (EETQ).
    """
    lead, (rows, columns) = weight[:-2], weight[-2:]

    anything = "one value, a row, a group or a block"

    def fits(shape: Shape) -> str:
        scale = normalised(tuple(shape), len(weight))
        if block is not None:
            wanted = (*lead, ceil_div(rows, block[0]), ceil_div(columns, block[1]))
            fine = scale == wanted or (prod(wanted) == 1 and prod(scale) == 1)
            return "" if fine else f"{list(wanted)} (blocks of {block[0]} x {block[1]})"
        if prod(scale) == 1 or scale in (lead, (*lead, 1), (*lead, 1, 1)):
            return ""
        channel = scale in ((*lead, rows), (*lead, rows, 1), (*lead, 1, columns))
        if channel or (transposed and scale == (*lead, columns)):
            return ""
        if len(scale) != len(weight) or scale[:-2] != lead:
            return f"{list(lead)} and {anything}" if lead else anything
        high, wide = scale[-2:]
        tall, broad = _block(rows, high), _block(columns, wide)
        fine = bool(high and wide) and ceil_div(rows, tall) == high
        fine = fine and (ceil_div(columns, broad) == wide or columns % wide == 0)
        return "" if fine else f"whole blocks of {rows} x {columns}"

    return fits


def grained_scale(weight: Shape, scheme: str, block: tuple[int, int] | None) -> Fits:
    """A scale of a known grain.

    Args:
        weight: logical shape, at least two dimensions.
        scheme: `fp8_tensor`, `fp8_channel` or `fp8_block`, whatever the dtype of the weight.
        block: of `fp8_block`.
    """
    if scheme == "fp8_block":
        return floating_scale(weight, block)
    lead, (rows, columns) = weight[:-2], weight[-2:]
    if scheme == "fp8_channel":
        fine = [(*lead, rows, 1), (*lead, rows), (*lead, 1, columns)]
    else:
        fine = [lead, (*lead, 1), (*lead, 1, 1), (), (1,), (1, 1)]
    return lambda shape: "" if normalised(tuple(shape), len(weight)) in fine else str(list(fine[0]))


def row_groups(lead: Shape, groups: int) -> Fits:
    """So many scales for each row; a single one may leave its dimension out.

    Args:
        lead: the weight's dimensions but the last.
        groups: scales of a row.
    """
    return one_of((*lead, groups), lead) if groups == 1 else one_of((*lead, groups))


def grouped_scale(stored: Shape, group: int, ratio: float) -> Fits:
    """One scale for each group of a row.

    Args:
        stored: shape of the packed weight.
        group: weights that share a scale; 0 where it is not known.
        ratio: weights in one stored element.
    """
    lead, columns = stored[:-1], round(stored[-1] * ratio) if stored else 0

    def fits(shape: Shape) -> str:
        scale = normalised(tuple(shape), len(stored))
        wanted = (*lead, ceil_div(columns, group)) if group else (*lead, -1)
        if scale and scale[:-1] == lead and (not group or scale[-1] == wanted[-1]):
            return ""
        return str(list(wanted)) if group else f"{list(lead)} + groups"

    return fits
