"""The features that an image comes to on the target's own stream, judged like a node's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.image_skeleton import ImageCall
from day0.adapters.models.image_features import feature_tensors
from day0_worker.dtypes import torch_dtype

from ... import thresholds
from ..measures.judge import judge_all
from ..measures.values import WrongOutput, distances
from ..prompts.passes import MAIN
from ..record_parts import ImageFeatures, ImageResult, Metrics, ReferenceCheck
from ..walk.forwards import NOISE, OWN, REFERENCE
from ..walk.lockstep import Comparison
from .image_passes import ASPECT, NAMES, PURPOSES, shown

_ENDED = "the target's own stream ended before the features"


def features_of(
    comparison: Comparison, calls: Sequence[ImageCall], dtype: str, check: ReferenceCheck
) -> ImageFeatures:
    """How far the features are off on each call's images, and whether rounding adds up to that.

    Args:
        comparison: of the walk on images.
        calls: that it ran, in its order.
        dtype: short name of the target's precision.
        check: whether the reference's features can be trusted.
    """
    results = []
    for name, call in zip((MAIN, ASPECT), calls, strict=False):
        streams = comparison.outputs.get(name)
        why = comparison.dropped.get(name) or (comparison.stopped.message if comparison.stopped else _ENDED)
        result = _measured(streams or {}, dtype, why)
        known = {"name": NAMES[name], "shown": shown(call), "purpose": PURPOSES[NAMES[name]]}
        results.append(result.model_copy(update=known))
    off = [result for result in results if result.state == "fail"]
    state = "fail" if off else "pass" if any(result.state == "pass" for result in results) else "unverified"
    return ImageFeatures(state=state, results=results, reference_check=check)


def _measured(streams: Mapping[str, Any], dtype: str, why: str) -> ImageResult:
    if any(stream not in streams for stream in (REFERENCE, NOISE, OWN)):
        return ImageResult(reason=why)
    ours, noise, own = (
        [tensor for tensor in feature_tensors(streams[name]) if tensor.is_floating_point()]
        for name in (REFERENCE, NOISE, OWN)
    )
    tokens = sum(tensor.numel() // max(1, tensor.shape[-1]) for tensor in ours if tensor.dim())
    try:
        judgement = judge_all(
            distances(own, ours, torch_dtype(dtype)),
            distances(noise, ours, torch_dtype(dtype)),
            eps=torch.finfo(torch_dtype(dtype)).eps,
        )
    except WrongOutput as wrong:
        return ImageResult(tokens=tokens, state="fail", reason=f"shape: the target {wrong}")
    if judgement is None or not _applies(ours):
        return ImageResult(tokens=tokens, reason="the reference's features are empty, or not finite")
    reason = _excess(judgement.metrics)
    return ImageResult(
        tokens=tokens, state="fail" if reason else "pass", metrics=judgement.metrics, reason=reason
    )


def _applies(features: Sequence[Tensor]) -> bool:
    return any(tensor.numel() for tensor in features) and all(
        bool(torch.isfinite(tensor).all()) for tensor in features
    )


def _excess(metrics: Metrics) -> str:
    """What rounding does not add up to; its own stream may be off by more than one node may."""
    if metrics.nonfinite:
        return f"{metrics.nonfinite} numbers are not finite"
    limit = thresholds.NUMERICS_PROPAGATED_RATIO
    for name in ("token_ratio", "ratio"):
        value = float(getattr(metrics, name))
        if value > limit:
            return f"{name} {value:.3g} is beyond {limit:.3g}"
    return ""
