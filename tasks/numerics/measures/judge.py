"""From distances to a verdict: the target's error in units of the rounding that its precision explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from day0.adapters.base.values import json_number

from ... import thresholds
from ..record import Metrics
from .metrics import Distance
from .panel import Panel, panel


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


def judge(
    target: Distance, noise: Distance, *, eps: float, routed: bool = False, kept: Tensor | None = None
) -> Judgement:
    """Holds the target's distance from the reference against the noise arm's.

    Args:
        target: of the target's output.
        noise: of the noise arm's output, on the same input.
        eps: machine epsilon of the target's precision (2^-7 for bf16).
        routed: whether tokens may be routed to other experts by rounding alone. Such a node is judged by its
            typical token, by the gain of the tokens that were not, and by how many were; not by sums that a
            few flips rule. Means nothing where `kept` is given.
        kept: [tokens] bool, the tokens that neither the noise arm nor the target routed otherwise than the
            reference; all others are left out, and how many they are is the router's account. Measure both
            distances on no other rows to have channels judged too.
    """
    heuristic = routed and kept is None
    found = panel(target, noise, eps=eps, routed=routed, kept=kept)
    excesses = [excess for excess in _excesses(target, noise, found, heuristic) if excess is not None]
    zero = target.scale == 0.0 and target.unknown == 0
    if target.masked:
        applies = True
    else:
        applies = target.unknown == 0 and (target.exact or not math.isnan(found.rel_l2))
    return Judgement(_metrics(target, found), _furthest(excesses), applies=applies, zero=zero)


def judge_all(
    targets: Sequence[Distance],
    noises: Sequence[Distance],
    *,
    eps: float,
    routed: bool = False,
    kept: Tensor | None = None,
) -> Judgement | None:
    """The judgement of the worst of an output's tensors; None where there is none to judge.

    It is `zero` only where every tensor is; a part that is not speaks for one that is. `kept` holds for the
    tensors that have as many tokens.
    """
    if not targets or len(targets) != len(noises):
        return None
    judged = [
        judge(
            t,
            n,
            eps=eps,
            routed=routed,
            kept=kept if kept is not None and kept.numel() == t.counted.numel() else None,
        )
        for t, n in zip(targets, noises, strict=True)
    ]
    return replace(max(judged, key=_badness), zero=all(judgement.zero for judgement in judged))


def shares(found: Panel, *, heuristic: bool = False) -> dict[str, float]:
    """Each measure that is judged -> its value over its tolerance; above 1 it is beyond.

    Args:
        found: of one tensor.
        heuristic: whether the node is routed and which tokens were routed otherwise is not known.
    """
    plain = ("token_ratio",) if heuristic else ("token_ratio", "ratio", "worst_ratio", "channel_ratio")
    over = {metric: float(getattr(found, metric)) / _tolerance(metric, found) for metric in plain}
    # A mean gain must be both certain and large enough to matter.
    certain = found.gain_score / thresholds.NUMERICS_GAIN_SCORE
    over["gain_score"] = min(certain, found.gain_share / thresholds.NUMERICS_GAIN_SHARE)
    return over


def _excesses(target: Distance, noise: Distance, found: Panel, heuristic: bool) -> list[Excess | None]:
    if target.masked:
        return [Excess("misplaced", target.misplaced, 0) if target.misplaced else None]
    ratios = shares(found, heuristic=heuristic)
    excesses = [_nonfinite(target), _against_zero(target, noise)]
    for metric, share in ratios.items():
        if share > 1:
            excesses.append(Excess(metric, float(getattr(found, metric)), _tolerance(metric, found)))
    if heuristic:
        excesses.append(_outliers(found.outliers, found.expected_outliers))
    return excesses


def _tolerance(metric: str, found: Panel) -> float:
    return _TOLERANCE[metric] * (found.tail if metric == "worst_ratio" else 1.0)


_TOLERANCE = {
    "token_ratio": thresholds.NUMERICS_RATIO,
    "ratio": thresholds.NUMERICS_RATIO,
    "worst_ratio": thresholds.NUMERICS_WORST_TOKEN,
    "channel_ratio": thresholds.NUMERICS_WORST_CHANNEL,
    "gain_score": thresholds.NUMERICS_GAIN_SCORE,
}


def _metrics(target: Distance, found: Panel) -> Metrics:
    return Metrics(
        rel_l2=json_number(found.rel_l2),
        cosine=json_number(target.cosine),
        centred_cosine=json_number(target.centred_cosine),
        max_abs=json_number(target.max_abs),
        worst_token=json_number(found.worst_token),
        gain=json_number(found.gain),
        gain_score=json_number(found.gain_score),
        ratio=json_number(found.ratio),
        token_ratio=json_number(found.token_ratio),
        worst_ratio=json_number(found.worst_ratio),
        worst_channel=json_number(found.worst_channel),
        channel_ratio=json_number(found.channel_ratio),
        ulp=json_number(target.ulp),
        outliers=found.outliers,
        nonfinite=target.nonfinite,
        nan=target.nan,
        not_applicable=found.not_applicable,
    )


def _nonfinite(target: Distance) -> Excess | None:
    return Excess("nonfinite", target.nonfinite, 0) if target.nonfinite else None


def _against_zero(target: Distance, noise: Distance) -> Excess | None:
    """Where the reference is zero nothing relative applies; then the largest difference alone speaks."""
    if target.scale > 0.0 or target.nonfinite or target.unknown:
        return None
    tolerance = thresholds.NUMERICS_WORST_TOKEN * noise.max_abs
    return Excess("max_abs", target.max_abs, tolerance) if target.max_abs > tolerance else None


def _outliers(count: int, expected: int) -> Excess | None:
    spread = thresholds.NUMERICS_OUTLIER_SIGMA * math.sqrt(expected + 1)
    tolerance = expected + spread + thresholds.NUMERICS_OUTLIER_SPARE
    return Excess("outliers", count, tolerance) if count > tolerance else None


def _furthest(excesses: Sequence[Excess]) -> Excess | None:
    return max(excesses, key=lambda e: e.value / e.tolerance if e.tolerance else math.inf, default=None)


def _badness(judgement: Judgement) -> tuple[bool, bool, float]:
    ratio = float(judgement.metrics.ratio)
    return judgement.excess is not None, not judgement.applies, ratio if math.isfinite(ratio) else 0.0
