"""Half-open byte ranges: what of a file is here and what is not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""First byte and the one after the last."""


class RangeSet:
    """Ranges that neither touch nor overlap, in order."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Range]:
        return iter(tuple(zip(self._starts, self._stops, strict=True)))

    @property
    def total(self) -> int:
        """Bytes in all ranges."""
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        """Joins one range; an empty one changes nothing."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = first
        while last < len(self._starts) and self._starts[last] <= stop:
            start, stop = min(start, self._starts[last]), max(stop, self._stops[last])
            last += 1
        self._starts[first:last], self._stops[first:last] = [start], [stop]

    def missing(self, start: int, stop: int) -> list[Range]:
        """What of one range is not in the set, in order."""
        gaps: list[Range] = []
        at = bisect_left(self._stops, start + 1)
        while at < len(self._starts) and self._starts[at] < stop:
            if self._starts[at] > start:
                gaps.append((start, self._starts[at]))
            start = max(start, self._stops[at])
            at += 1
        if start < stop:
            gaps.append((start, stop))
        return gaps


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in order, those that touch or overlap as one."""
    return list(RangeSet(sorted(ranges)))


def units(start: int, stop: int, size: int) -> Iterator[Range]:
    """One range cut at the multiples of `size`."""
    while start < stop:
        end = min((start // size + 1) * size, stop)
        yield start, end
        start = end
