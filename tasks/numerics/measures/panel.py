"""The panel: each measure of the target in units of the noise that its precision explains.

Noise is the noise arm's own distance from the reference on the same input, and at least one ULP of the
target's precision at the scale of what is measured (a whole tensor, a token, a channel): no arm is held to be
better than that, in case the noise arm met numbers that its dtype happens to hold exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import thresholds
from .metrics import Distance

ZERO = "the reference is zero"
NOT_FINITE = "the reference is not finite"
CONSTANT = "one side is constant"
SINGLE = "it has a single element"
MASK = "it holds nothing but a mask"
FEW = "too few tokens"
_ALL = (
    "rel_l2",
    "cosine",
    "centred_cosine",
    "worst_token",
    "worst_channel",
    "gain",
    "gain_score",
    "ratio",
    "token_ratio",
    "worst_ratio",
    "channel_ratio",
    "ulp",
)


@dataclass(frozen=True)
class Panel:
    """The target's measures over the noise's; NaN where one does not apply.

    Attributes:
        rel_l2: of the tokens that are judged.
        worst_token: of these.
        worst_channel: over these.
        ratio: rel_l2 over the noise's.
        token_ratio: the typical (median) token's relative L2 over the noise's.
        worst_ratio: the worst token's over the noise's worst.
        channel_ratio: largest over channels of the channel's relative L2 over that channel's noise, which
            counts as twice the typical channel's at least.
        gain: mean gain of the tokens.
        gain_score: how far it lies outside of what zero and the noise arm's own gain span, in standard errors
            of the noise arm.
        gain_share: the same as a share of a typical token's noise.
        outliers: tokens of a routed node that are too far off for rounding.
        expected_outliers: those of the noise arm.
        not_applicable: measure -> why it says nothing here.
        tail: factor by which the worst token may be further off than among few tokens.
    """

    rel_l2: float
    worst_token: float
    worst_channel: float
    ratio: float
    token_ratio: float
    worst_ratio: float
    channel_ratio: float
    gain: float
    gain_score: float
    gain_share: float
    outliers: int
    expected_outliers: int
    not_applicable: Mapping[str, str]
    tail: float = 1.0


def panel(
    target: Distance, noise: Distance, *, eps: float, routed: bool = False, kept: Tensor | None = None
) -> Panel:
    """Holds the target's measures against the noise's.

    Args:
        target: of the target's output.
        noise: of the noise arm's output, on the same input.
        eps: machine epsilon of the target's precision (2^-7 for bf16).
        routed: whether tokens may be routed to other experts by rounding alone, and which is not known.
            Then outliers are left out of the gain.
        kept: [tokens] bool, the tokens that neither arm routed otherwise, where that is known: all others are
            left out. Channels then speak only where both distances were measured on no others (`rows`).
    """
    judged = target.counted & noise.counted
    if kept is not None:
        judged = judged & kept.reshape(-1).bool().cpu()
    errors, noises = target.errors[judged], torch.maximum(noise.errors, _floors(target, eps))[judged]
    typical = _median(noises)
    limit = thresholds.NUMERICS_OUTLIER * typical
    outliers, expected = errors > limit, noise.errors[judged] > limit
    steady = judged.clone()
    if routed and kept is None:
        steady[judged] = ~(outliers | expected)
    gain, beyond, score = _gain(target, noise, eps, steady)
    whole = _relative(target, judged)
    floor = _floor(float(target.norms[judged].square().mean().sqrt()) / math.sqrt(max(1, target.width)), eps)
    worst = _largest(errors) if not target.nonfinite else math.nan
    whole_channels = bool((judged == target.counted).all() & (judged == noise.counted).all())
    channels = _channels(target, noise, eps) if whole_channels else math.nan
    return Panel(
        rel_l2=whole,
        worst_token=worst,
        worst_channel=target.worst_channel if whole_channels else math.nan,
        ratio=whole / _at_least(_relative(noise, judged), floor),
        token_ratio=_median(errors) / typical,
        worst_ratio=worst / _at_least(_largest(noises), typical),
        channel_ratio=channels,
        gain=gain,
        gain_score=score,
        gain_share=beyond / typical,
        outliers=int(outliers.sum()) if routed and kept is None else 0,
        expected_outliers=int(expected.sum()),
        not_applicable=_not_applicable(target, int(judged.sum()), whole_channels),
        tail=_tail(_largest(noises), typical, int(judged.sum())),
    )


def _tail(worst: float, typical: float, tokens: int) -> float:
    """How much further off the worst token may be since there are many; see the threshold's reason."""
    longer = math.sqrt(tokens / thresholds.NUMERICS_TOKENS)
    own = worst / typical if typical > 0 else 1.0
    return max(1.0, min(longer, own)) if own == own else 1.0


def _floors(distance: Distance, eps: float) -> Tensor:
    """[tokens] one ULP at each token's scale, over that scale."""
    scale = distance.norms / math.sqrt(max(1, distance.width))
    return torch.where(scale > 0, _binade(scale) * eps / scale, math.nan)


def _floor(scale: float, eps: float) -> float:
    """One ULP at that scale, over it: between eps / 2 and eps."""
    return float(_binade(torch.tensor(scale, dtype=torch.float32))) * eps / scale if scale > 0 else math.nan


def _binade(scale: Tensor) -> Tensor:
    return torch.exp2(torch.floor(torch.log2(scale)))


def _channels(target: Distance, noise: Distance, eps: float) -> float:
    """The largest ratio of any channel.

    A channel's noise comes from as many elements as there are tokens, so by chance it may be far too small:
    twice the typical channel's is granted to each.
    """
    if target.tokens < thresholds.NUMERICS_MIN_TOKENS or target.nonfinite:
        return math.nan
    scale = target.channel_norms / math.sqrt(target.tokens)
    ulp = torch.where(scale > 0, _binade(scale) * eps / scale, math.nan)
    granted = torch.clamp_min(ulp, 2 * _at_least(_median(noise.channels), 0.0))
    return _largest(target.channels / torch.fmax(noise.channels, granted))


def _gain(target: Distance, noise: Distance, eps: float, kept: Tensor) -> tuple[float, float, float]:
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
    rounding = thresholds.NUMERICS_ROUNDING_ULP * eps * target.spreads[kept]
    variance = max(float(noise.gains[kept].var()), float(rounding.square().mean()))
    return gain, beyond, beyond / math.sqrt(variance / count)


def _not_applicable(target: Distance, tokens: int, channels: bool) -> dict[str, str]:
    if target.masked:
        return dict.fromkeys(_ALL, MASK)
    if target.scale == 0.0:
        nothing = (*_ALL, "max_abs") if math.isnan(target.max_abs) else _ALL
        return dict.fromkeys(nothing, NOT_FINITE if target.unknown else ZERO)
    found: dict[str, str] = {}
    if tokens * target.width == 1:
        found |= dict.fromkeys(("cosine", "centred_cosine"), SINGLE)
    elif math.isnan(target.centred_cosine) and not target.nonfinite:
        found["centred_cosine"] = CONSTANT
    if math.isnan(target.cosine) and not target.nonfinite:
        found.setdefault("cosine", "the target is zero")
    if tokens < thresholds.NUMERICS_MIN_TOKENS:
        found |= dict.fromkeys(("gain", "gain_score", "worst_channel", "channel_ratio"), FEW)
    elif not channels:
        found |= dict.fromkeys(("worst_channel", "channel_ratio"), "tokens routed otherwise are in it")
    if target.nonfinite:
        wholes = (
            "rel_l2",
            "cosine",
            "centred_cosine",
            "worst_token",
            "worst_channel",
            "ratio",
            "worst_ratio",
        )
        found |= dict.fromkeys((*wholes, "channel_ratio"), "the target is not finite")
    return found


def _relative(distance: Distance, judged: Tensor) -> float:
    below = float(distance.norms[judged].square().sum())
    above = float(distance.differences[judged].square().sum())
    return math.sqrt(above / below) if below > 0 else math.nan


def _at_least(value: float, floor: float) -> float:
    return value if value > floor else floor


def _largest(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return float(known.max()) if known.numel() else math.nan


def _median(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return float(known.median()) if known.numel() else math.nan
