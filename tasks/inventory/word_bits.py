"""Bits and group of integers packed in words: what shapes prove, what is declared, what others show.

Bits and group of a weight only come as a product, so that one tensor alone often has two readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .record_quantization import QuantizationPart
from .scale_shapes import ceil_div
from .stored_forms import whole_quotient

USUAL_BITS = frozenset({2, 3, 4, 5, 6, 8})
# The smallest group of integers that published releases have (AWQ, GPTQ, MLX: 32, 64, 128).
_SMALLEST_GROUP = 32
Form = tuple[int, int]
"""Bits of a weight and weights that share a scale; 0 for one scale a row."""


@dataclass(frozen=True)
class Reading:
    """How words are read.

    Attributes:
        bits: of a weight.
        inputs: weights of a row.
        group: that share a scale, as the shapes must have it; 0 for one scale a row.
        doubt: what is assumed, or where shapes and declaration differ; empty where all agree.
    """

    bits: int
    inputs: int
    group: int
    doubt: str = ""

    @property
    def groups(self) -> int:
        """Scales of a row."""
        return ceil_div(self.inputs, self.group) if self.group else 1


def read_words(
    row_bits: int,
    groups: int,
    declared: QuantizationPart | None,
    agreed: Form | None,
    *,
    seen: Sequence[int] = (),
    width: int = 0,
) -> Reading:
    """Reads words that are packed along their rows.

    Args:
        row_bits: bits of one row of words.
        groups: scales of one row; 0 where they are not known.
        declared: of the module.
        agreed: how most weights of the same declaration are stored; None while that is not known yet.
        seen: bits that other tensors beside the weight prove.
        width: weights of a row by the numbers of the config; 0 where no formula holds.
    """
    stated, size = stated_form(declared)
    proven = [bits for bits in seen if 0 < bits <= 8]
    if len(proven) > 1 and len(set(proven)) == 1:
        bits = proven[0]
    elif stated and size and groups and row_bits == groups * size * stated:
        bits = stated
    elif proven:
        bits = stated if stated in proven else proven[0]
    elif groups > 1 and whole_quotient(row_bits, width) in USUAL_BITS:
        bits = whole_quotient(row_bits, width)
    else:
        bits = agreed[0] if agreed else _bits_by_group(row_bits, groups, stated, size)
    # Four bits is what every published packed release but a few has; those few declare it.
    found = bits or stated or 4
    return read_groups(row_bits // found, groups, declared, agreed, found, known=bool(bits or stated))


def read_groups(
    inputs: int,
    groups: int,
    declared: QuantizationPart | None,
    agreed: Form | None,
    bits: int,
    *,
    known: bool,
) -> Reading:
    """The group of weights whose bits and number of inputs are known.

    Args:
        inputs: weights of a row.
        groups: scales of one row; 0 where they are not known.
        declared: of the module.
        agreed: how most weights of the same declaration are stored.
        bits: of a weight.
        known: whether shapes or the declaration tell the bits.
    """
    stated, size = stated_form(declared)
    shown = shown_group(inputs, groups, size)
    group = agreed[1] if agreed and shown != size else shown
    if not groups:
        group = size or group
    doubt = ""
    if not known:
        doubt = f"{bits} bits assumed: neither shapes nor config say"
    elif stated and stated != bits:
        doubt = f"{stated} bits are declared, the shapes show {bits}"
    elif size and group != size and groups:
        doubt = (
            f"groups of {size} are declared, {bits} bits each, the shapes show {group or 'one scale a row'}"
        )
    elif not size and group and declared is not None and declared.scheme in ("gptq", "awq"):
        doubt = f"no groups are declared, the shapes show groups of {group}"
    return Reading(bits, inputs, group, doubt)


def stated_form(declared: QuantizationPart | None) -> Form:
    """Bits and group as declared; 0 for what is not."""
    stated = declared.bits if declared and 0 < declared.bits <= 8 else 0
    size = declared.group if declared and isinstance(declared.group, int) else 0
    return stated, size


def shown_group(inputs: int, groups: int, size: int) -> int:
    """The group that so many scales of a row show; the declared one where it explains them.

    Groups are powers of two; a last group cut short makes the quotient smaller than the group.
    """
    if size and ceil_div(inputs, size) == groups:
        return size
    if groups <= 1:
        return 0
    whole = whole_quotient(inputs, groups)
    return whole or (1 << (ceil_div(inputs, groups) - 1).bit_length() if inputs else 0)


def _bits_by_group(row_bits: int, groups: int, stated: int, size: int) -> int:
    """Bits that a declared group and the number of scales imply; 0 where the declared bits explain them.

    The declared bits stand unless they make a group that no release has.
    """
    if groups <= 1 or not size:
        return 0
    bits = whole_quotient(row_bits, groups * size)
    by_bits = whole_quotient(row_bits, groups * stated) if stated else 0
    usual = by_bits >= _SMALLEST_GROUP and by_bits & (by_bits - 1) == 0
    return bits if bits in USUAL_BITS and (bits == stated or not usual) else 0
