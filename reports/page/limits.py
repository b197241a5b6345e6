"""How much of a long table stands on the page; the rest is in report.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

WORST_ROWS = 200
"""Rows of one table on the page."""
ALL_TARGETS_ROWS = 400
"""Rows of one kind of table over all targets, so that the page stays below 1 MB."""


def rows_per_table(targets: int) -> int:
    """The worst rows that one table may show in a report of that many targets."""
    return max(20, min(WORST_ROWS, ALL_TARGETS_ROWS // max(targets, 1)))


def pick(count: int, limit: int, badness_first: Callable[[int], Any]) -> Sequence[int]:
    """The positions of the `limit` rows that sort first, in their own order; all where there are no more."""
    if count <= limit:
        return range(count)
    return sorted(sorted(range(count), key=badness_first)[:limit])
