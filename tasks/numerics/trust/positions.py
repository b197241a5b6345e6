"""Two sides' numbers held against each other, position by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

_CHUNK = 64
"""Positions that are widened to fp64 at a time."""


@dataclass(frozen=True)
class Positions:
    """How far two sides are apart at each position.

    Attributes:
        errors: relative L2 over the elements that are finite on both sides; infinite at a position where an
            element is finite on one side only.
        one_sided: number of such positions.
        unknown: number of positions with an element that is finite on neither side. Equality says nothing
            there: NaN is what any wrong weight may lead to. Minus infinity on both sides is a mask.
    """

    errors: Sequence[float]
    one_sided: int
    unknown: int


def compare_positions(ours: Tensor, theirs: Tensor) -> Positions:
    """Compares [length, width] with another of that shape."""
    errors: list[float] = []
    one_sided = unknown = 0
    for start in range(0, ours.shape[0], _CHUNK):
        one, other = (part[start : start + _CHUNK].double() for part in (ours, theirs))
        known = one.isfinite() & other.isfinite()
        apart = (one.isfinite() != other.isfinite()).any(dim=1)
        difference = (one - other).masked_fill(~known, 0.0)
        size = other.masked_fill(~known, 0.0).norm(dim=1).clamp_min(1e-300)
        errors += (difference.norm(dim=1) / size).masked_fill(apart, float("inf")).tolist()
        one_sided += int(apart.sum())
        masked = (one == -math.inf) & (other == -math.inf)
        unknown += int((~one.isfinite() & ~other.isfinite() & ~masked).any(dim=1).sum())
    return Positions(tuple(errors), one_sided, unknown)
