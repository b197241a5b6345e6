"""The format of every low-precision weight of a release, each found once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping

from .packed import Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .stored_forms import Neighbours, RowWidth, WeightFormat, alike
from .weight_formats import CONTAINERS, weight_format
from .word_bits import stated_form

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
        self._formats: dict[int, tuple[Group, WeightFormat | None]] = {}

    def _usual(self, groups: Iterable[Group]) -> Mapping[Hashable, tuple[int, int]]:
        """Bits and group of most weights of each declared form; the declared ones unless more show others."""
        votes: dict[Hashable, Counter[tuple[int, int]]] = {}
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
                votes.setdefault(key, Counter())[bits, found.group] += group.count
                stated[key] = stated_form(declared)
        return {key: _most(found, stated[key]) for key, found in votes.items()}

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


def _most(votes: Mapping[tuple[int, int], int], stated: tuple[int, int]) -> tuple[int, int]:
    """The form of most votes; of equally many the declared one."""
    return max(sorted(votes), key=lambda form: (votes[form], form == stated))


def _packs(group: Group) -> bool:
    """Whether a tensor may be a weight of which bits and group only come as a product."""
    name = group.pattern.segments[-1]
    return group.dtype in CONTAINERS and (name in ("qweight", "weight") or name.endswith("_packed"))
