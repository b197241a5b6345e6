"""A worker's answer to `train`, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.target import TrainingStep
from day0.adapters.base.target_spec import TargetSpec

if TYPE_CHECKING:
    from torch import Tensor


def as_training_step(tensors: Mapping[str, Tensor], spec: TargetSpec) -> TrainingStep:
    """The step out of the blob's tensors: `losses`, `gradients/NAME`, `weights/NAME`, `routed/PATH`.

    Raises:
        WorkerError: E607, there are no losses.
    """
    if "losses" not in tensors:
        raise WorkerError(f"{spec} answered a step of training without losses", code="E607")
    return TrainingStep(
        losses=tensors["losses"],
        gradients=_group(tensors, "gradients/"),
        weights=_group(tensors, "weights/"),
        routed=_group(tensors, "routed/"),
    )


def _group(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
