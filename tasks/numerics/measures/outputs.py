"""Agreement at the output: what the reference and the target would choose, position by position."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from day0.adapters.base.values import json_number

from ... import thresholds
from ..record import Logits

_CHUNK_POSITIONS = 32
_TOP = 5


def compare_logits(target: Tensor, reference: Tensor, noise: Tensor) -> Logits:
    """Compares next-token choices under the same tokens.

    A disagreement is decisive where the reference's margin between its two best tokens exceeds what rounding
    does to a difference of two logits, by the noise arm's RMS error at that position.

    Args:
        target: [positions, vocabulary], on the target's own stream.
        reference: [positions, vocabulary].
        noise: [positions, vocabulary], the reference in the target's precision on its own stream.

    Returns:
        Top-1 and top-5 agreement as shares of the positions at which the reference holds no NaN,
        KL(reference || target) in nats per position, decisive disagreements.
    """
    positions = reference.shape[0]
    known = same = decisive = 0
    overlap = divergence = 0.0
    for start in range(0, positions, _CHUNK_POSITIONS):
        part = slice(start, start + _CHUNK_POSITIONS)
        t, r, n = (tensor[part].to(torch.float64) for tensor in (target, reference, noise))
        best = r.topk(min(_TOP, r.shape[1]), dim=1)
        theirs = t.topk(best.indices.shape[1], dim=1).indices
        # The order of NaN is nobody's choice: a reference that holds any is left out, a target disagrees.
        told, chosen = ~r.isnan().any(1), ~(t.isnan() | r.isnan()).any(1)
        agree = (theirs[:, 0] == best.indices[:, 0]) & chosen
        known, same = known + int(told.sum()), same + int(agree.sum())
        shared = (theirs[:, :, None] == best.indices[:, None, :]).any(2).to(torch.float64).mean(1) * chosen
        overlap += float(shared.sum())
        log_r, log_t = r.log_softmax(1), t.log_softmax(1)
        divergence += float((log_r.exp() * (log_r - log_t)).sum())
        margin = best.values[:, 0] - best.values[:, min(1, best.values.shape[1] - 1)]
        rounding = (n - r).square().mean(1).sqrt() * thresholds.NUMERICS_DECISIVE_SIGMA
        decisive += int((~agree & (margin > rounding)).sum())
    return Logits(
        top1=json_number(same / known if known else math.nan),
        top5=json_number(overlap / known if known else math.nan),
        kl=json_number(divergence / positions),
        decisive=decisive,
        positions=positions,
    )


def choices(logits: Tensor, positions: Sequence[int]) -> Sequence[int]:
    """The most likely token after each of the given positions of [positions, vocabulary] logits."""
    return tuple(int(logits[position].float().argmax()) for position in positions)
