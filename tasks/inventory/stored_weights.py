"""The format of every low-precision weight of a release, each found once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .packed import Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .stored_forms import Neighbours, WeightFormat
from .weight_formats import weight_format

PartOf = Callable[[Group], QuantizationPart | None]
"""What is declared for a group's module."""


class StoredWeights:
    """Finds how the weights of a group are stored.

    Args:
        groups: all tensors of the release.
        part_of: what is declared for a group's module.
    """

    def __init__(self, groups: Iterable[Group], part_of: PartOf) -> None:
        self.near = Neighbours(groups)
        self._part_of = part_of
        self._formats: dict[int, tuple[Group, WeightFormat | None]] = {}

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
