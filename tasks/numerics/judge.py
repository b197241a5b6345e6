"""From distances to a verdict: the target's error in units of the rounding that its precision explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from day0.adapters.base.values import json_number

from .. import thresholds
from .metrics import Distance
from .record import Metrics


@dataclass(frozen=True)
class Excess:
    """A measure beyond its tolerance.

    Attributes:
        metric: name of the measure.
        value: as measured.
        tolerance: that it exceeds.
    """

    metric: str
    value: float
    tolerance: float

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.3g} is beyond {self.tolerance:.3g}"


@dataclass(frozen=True)
class Judgement:
    """What one comparison came to.

    Attributes:
        metrics: for the record.
        excess: the measure furthest beyond its tolerance; None where all hold.
        applies: whether enough measures apply to say that the output is right.
        zero: whether the reference's output is zero throughout, so that no relative measure applies to it.
    """

    metrics: Metrics
    excess: Excess | None
    applies: bool
    zero: bool = False


def judge(target: Distance, noise: Distance, *, eps: float, routed: bool) -> Judgement:
    """Holds the target's distance from the reference against the noise arm's.

    Args:
        target: of the target's output.
        noise: of the noise arm's output, on the same input.
        eps: machine epsilon of the target's precision (2^-7 for bf16).
        routed: whether tokens may be routed to other experts by rounding alone. Such a node is judged by its
            typical token, by the gain of the tokens that were not, and by how many were; not by sums that a
            few flips rule.
    """
    floor = eps * thresholds.NOISE_FLOOR_ULP
    typical = max(_median(noise.errors), floor)
    limit = thresholds.NUMERICS_OUTLIER * typical
    kept = (
        ~((target.errors > limit) | (noise.errors > limit))
        if routed
        else torch.ones_like(target.errors).bool()
    )
    gain, beyond, score = _gain(target, noise, floor, kept)
    ratio = target.rel_l2 / _at_least(noise.rel_l2, floor)
    token_ratio = _median(target.errors) / typical
    worst_ratio = target.worst_token / _at_least(noise.worst_token, eps)
    outliers = int((target.errors > limit).sum()) if routed else 0
    metrics = Metrics(
        rel_l2=json_number(target.rel_l2),
        cosine=json_number(target.cosine),
        centred_cosine=json_number(target.centred_cosine),
        max_abs=json_number(target.max_abs),
        worst_token=json_number(target.worst_token),
        gain=json_number(gain),
        gain_score=json_number(score),
        ratio=json_number(ratio),
        token_ratio=json_number(token_ratio),
        worst_ratio=json_number(worst_ratio),
        outliers=outliers,
        nonfinite=target.nonfinite,
    )
    excesses = [
        _nonfinite(target),
        _against_zero(target, noise),
        _beyond("token_ratio", token_ratio, thresholds.NUMERICS_RATIO),
    ]
    if routed:
        excesses.append(_outliers(outliers, int((noise.errors > limit).sum())))
    else:
        excesses.append(_beyond("ratio", ratio, thresholds.NUMERICS_RATIO))
        excesses.append(_beyond("worst_ratio", worst_ratio, thresholds.NUMERICS_WORST_TOKEN))
    if beyond > thresholds.NUMERICS_GAIN_SHARE * typical:
        excesses.append(_beyond("gain_score", score, thresholds.NUMERICS_GAIN_SCORE))
    found = [excess for excess in excesses if excess is not None]
    return Judgement(
        metrics,
        _furthest(found),
        applies=target.unknown == 0 and (target.exact or not math.isnan(target.rel_l2)),
        zero=target.scale == 0.0 and target.unknown == 0,
    )


def _gain(target: Distance, noise: Distance, floor: float, kept: Tensor) -> tuple[float, float, float]:
    """Mean gain of the kept tokens, how far it is off, and that in standard errors of the noise arm.

    Where many elements are equal (cosines scaled by one factor, as YaRN does) all of them round the same way:
    the noise arm's own mean gain is off zero by many standard errors. So a mean gain between zero and the
    noise arm's is not off at all, and one beyond them only by what lies beyond.
    """
    kept = kept & ~torch.isnan(target.gains) & ~torch.isnan(noise.gains)
    count = int(kept.sum())
    if count < thresholds.NUMERICS_MIN_TOKENS:
        return math.nan, math.nan, math.nan
    gain, expected = float(target.gains[kept].mean()), float(noise.gains[kept].mean())
    beyond = max(gain - max(expected, 0.0), min(expected, 0.0) - gain, 0.0)
    variance = max(float(noise.gains[kept].var()), float(((floor * target.spreads[kept]) ** 2).mean()))
    return gain, beyond, beyond / math.sqrt(variance / count)


def _nonfinite(target: Distance) -> Excess | None:
    return Excess("nonfinite", target.nonfinite, 0) if target.nonfinite else None


def _against_zero(target: Distance, noise: Distance) -> Excess | None:
    """Where the reference is zero nothing relative applies; then the largest difference alone speaks."""
    if target.scale > 0.0 or target.nonfinite or target.unknown:
        return None
    return _beyond("max_abs", target.max_abs, thresholds.NUMERICS_WORST_TOKEN * noise.max_abs)


def _beyond(metric: str, value: float, tolerance: float) -> Excess | None:
    return Excess(metric, value, tolerance) if value > tolerance else None


def _outliers(count: int, expected: int) -> Excess | None:
    spread = thresholds.NUMERICS_OUTLIER_SIGMA * math.sqrt(expected + 1)
    return _beyond("outliers", count, expected + spread + thresholds.NUMERICS_OUTLIER_SPARE)


def _furthest(excesses: Sequence[Excess]) -> Excess | None:
    return max(excesses, key=lambda e: e.value / e.tolerance if e.tolerance else math.inf, default=None)


def _at_least(value: float, floor: float) -> float:
    return value if value > floor else floor


def _median(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return float(known.median()) if known.numel() else math.nan


def judge_all(
    targets: Sequence[Distance], noises: Sequence[Distance], *, eps: float, routed: bool
) -> Judgement | None:
    """The judgement of the worst of an output's tensors; None where there is none to judge.

    It is `zero` only where every tensor is; a part that is not speaks for one that is.
    """
    if not targets or len(targets) != len(noises):
        return None
    judged = [judge(t, n, eps=eps, routed=routed) for t, n in zip(targets, noises, strict=True)]
    return replace(max(judged, key=_badness), zero=all(judgement.zero for judgement in judged))


def _badness(judgement: Judgement) -> tuple[bool, bool, float]:
    ratio = float(judgement.metrics.ratio)
    return judgement.excess is not None, not judgement.applies, ratio if math.isfinite(ratio) else 0.0
