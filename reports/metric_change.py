"""When a number of numerics counts as another one than before, and how that is told."""

from __future__ import annotations

import math

from day0.adapters.base.values import Number
from day0.tasks.thresholds import METRIC_CHANGE_FACTOR

from .change import Change
from .words import number_text


def beyond_band(before: Number, after: Number, floor: float = 0.0) -> bool:
    """Whether a measure moved by more than `METRIC_CHANGE_FACTOR`, or became or ceased to be finite or zero.

    What stays at or below `floor` does not count, however much it moved.
    """
    old, new = abs(float(before)), abs(float(after))
    if not (math.isfinite(old) and math.isfinite(new)):
        return str(before) != str(after)
    if max(old, new) <= floor or old == new:
        return False
    return min(old, new) == 0 or max(old, new) / min(old, new) > METRIC_CHANGE_FACTOR


def exceeds(after: Number, before: Number) -> bool:
    """Whether a measure grew in magnitude, or became no number."""
    old, new = abs(float(before)), abs(float(after))
    return math.isnan(new) or new > old


def metric_change(
    target: str, node: str, metric: str, before: Number, after: Number, *, worse: bool | None
) -> Change:
    """A number that moved."""
    return Change(
        kind="metric",
        target=target,
        stage="numerics",
        subject=f"{node} {metric}",
        before=before,
        after=after,
        worse=worse,
        text=f"{target}: {node} {metric} {number_text(before)} -> {number_text(after)}",
    )
