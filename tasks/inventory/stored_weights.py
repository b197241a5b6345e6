"""The format of every low-precision weight of a release, each found once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping

from day0.adapters.base.dtypes import BITS

from .packed import Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import block_of_scale, grained_scale
from .stored_forms import Grain, Neighbours, RowWidth, WeightFormat, alike
from .weight_formats import CONTAINERS, weight_format
from .word_bits import stated_form

_SINGLE = frozenset({"int8", "uint8", *(word for word in BITS if word.startswith("fp8"))})

PartOf = Callable[[Group], QuantizationPart | None]
"""What is declared for a group's module."""


class StoredWeights:
    """Finds how the weights of a group are stored.

    Args:
        groups: all tensors of the release.
        part_of: what is declared for a group's module.
        width: weights in a row of a matrix by the numbers of the config.
    """

    def __init__(self, groups: Iterable[Group], part_of: PartOf, width: RowWidth = lambda _: 0) -> None:
        kept = tuple(groups)
        self.near = Neighbours(kept, width)
        self._part_of = part_of
        self.near.agree(self._usual(kept))
        self.near.agree_grains(self._grains(kept))
        self._formats: dict[int, tuple[Group, WeightFormat | None]] = {}

    def _usual(self, groups: Iterable[Group]) -> Mapping[Hashable, tuple[int, int]]:
        """Bits and group of most weights of each declared form; the declared ones unless more show others."""
        votes: dict[Hashable, Counter[tuple[int, int, int]]] = {}
        stated: dict[Hashable, tuple[int, int]] = {}
        for group in groups:
            if not _packs(group):
                continue
            declared = self._part_of(group)
            found = weight_format(group, self.near, declared)
            if found is None or not isinstance(found.group, int):
                continue
            if self.near.first(group, *found.needs[0].names) is not None:  # without a scale it shows nothing
                key = alike(group, declared)
                bits = 0 if "assumed" in found.doubt else found.bits
                votes.setdefault(key, Counter())[bits, found.group, _row(group, found)] += group.count
                stated[key] = stated_form(declared)
        return {key: _most(found, stated[key]) for key, found in votes.items()}

    def _grains(self, groups: Iterable[Group]) -> Mapping[str, Grain]:
        """How most weights of each pattern are scaled whose elements are single weights."""
        votes: dict[str, Counter[Grain]] = {}
        for group in groups:
            if group.dtype not in _SINGLE or len(group.shape) < 2:
                continue
            declared = self._part_of(group)
            if declared is not None and declared.scheme == "fp8_block":  # its block decides
                continue
            found = weight_format(group, self.near, declared)
            if found is None or found.packing is not None:
                continue
            side = self.near.first(group, *found.needs[0].names)
            grain = _grain(group, side) if side is not None else None
            if grain is not None:
                votes.setdefault(group.pattern.text, Counter())[grain] += group.count
        most = {text: found.most_common(1)[0] for text, found in votes.items()}
        return {text: grain for text, (grain, count) in most.items() if 2 * count > votes[text].total()}

    def format(self, group: Group) -> WeightFormat | None:
        """How the weights of a group are stored; None for plain ones."""
        known = self._formats.get(id(group))
        if known is None:
            known = self._formats[id(group)] = group, weight_format(group, self.near, self._part_of(group))
        return known[1]

    def packing(self, group: Group) -> Packing | None:
        """The packing of a weight; None where each element is one weight."""
        found = self.format(group)
        return found.packing if found else None


def _row(group: Group, found: WeightFormat) -> int:
    """Weights of a row that has one scale; 0 where it has more, or where the shape does not show it."""
    shape = found.packing.shape(group.shape) if found.packing and not found.group else ()
    return shape[-1] if shape else 0


def _most(votes: Mapping[tuple[int, int, int], int], stated: tuple[int, int]) -> tuple[int, int]:
    """The form of most votes; of equally many the declared one.

    A row with one scale is also one of any group that is not shorter than it.
    """
    forms: Counter[tuple[int, int]] = Counter()
    for (bits, group, _), count in votes.items():
        if group:
            forms[bits, group] += count
    grouped = [form for form, _ in forms.most_common()]
    for (bits, group, row), count in votes.items():
        if not group:
            fits = (form for form in grouped if row and form[0] == bits and form[1] >= row)
            forms[next(fits, (bits, 0))] += count
    return max(sorted(forms), key=lambda form: (forms[form], form == stated))


def _grain(group: Group, side: Group) -> Grain | None:
    """What grain a scale's shape shows; None for a shape of none of them."""
    scheme, size = block_of_scale(group.shape, side.shape, None)
    grain = scheme, None if isinstance(size, int) else (size[0], size[1])
    return None if grained_scale(group.shape, *grain)(side.shape) else grain


def _packs(group: Group) -> bool:
    """Whether a tensor may be a weight of which bits and group only come as a product."""
    name = group.pattern.segments[-1]
    named = name in ("qweight", "weight", "W_q", "B", "_data") or name.endswith(("_packed", "_qdata"))
    return group.dtype in CONTAINERS and named
