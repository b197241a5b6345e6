"""Which tensors of a pattern something holds for: exact sets over layers, experts and other indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from .index_sets import format_indices, layers_text
from .patterns import Group, Member

_MOST_LINES = 20


def members(group: Group) -> Set[Member]:
    """The indices of a group's tensors beside the layer; the empty one where there is none."""
    return group.others.distinct


def same_members(first: Group, second: Group) -> bool:
    """Whether two groups of one layer hold tensors of the same indices."""
    if first.count != second.count:
        return False
    return first.others is second.others or members(first) == members(second)


@dataclass
class Tally:
    """Tensors of one pattern.

    Attributes:
        held: layer (None without) -> indices beside it.
        number: how many.
        example: whole name of the first.
    """

    held: dict[int | None, set[Member]] = field(default_factory=dict)
    number: int = 0
    example: str = ""

    def add(self, group: Group, which: Iterable[Member]) -> None:
        """Counts these of a group's tensors."""
        found = self.held.setdefault(group.layer, set())
        before = len(found)
        found.update(which)
        self.number += len(found) - before
        self.example = self.example or group.example

    def lines(self) -> Sequence[str]:
        """The exact sets, e.g. `layers 3-5: 17,20`; layers of the same indices in one line."""
        alike: dict[tuple[Member, ...], list[int | None]] = {}
        for layer, which in self.held.items():
            if which:
                alike.setdefault(tuple(sorted(which)), []).append(layer)
        lines = [_line(which, layers) for which, layers in alike.items()]
        more = len(lines) - _MOST_LINES
        return [*lines[:_MOST_LINES], *([f"and {more} more sets"] if more > 0 else [])]


def _line(which: tuple[Member, ...], layers: Sequence[int | None]) -> str:
    numbers = [layer for layer in layers if layer is not None]
    where = layers_text(format_indices(numbers)) if numbers else ""
    slots = len(which[0])
    if not slots:
        return where
    sets = [sorted({int(member[slot]) for member in which if len(member) == slots}) for slot in range(slots)]
    grid = 1
    for indices in sets:
        grid *= len(indices)
    if grid == len(which):
        text = " x ".join(format_indices(indices) for indices in sets)
    else:  # no rectangle: every one by itself
        text = ", ".join(".".join(member) for member in which[:_MOST_LINES])
        text += f" and {len(which) - _MOST_LINES} more" if len(which) > _MOST_LINES else ""
    return f"{where}: {text}" if where else f"indices {text}"
