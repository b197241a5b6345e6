"""What one comparison is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton

from .tokens import Tokens


@dataclass(frozen=True)
class Case:
    """What is compared with what.

    Attributes:
        skeleton: of the model.
        checkpoint: its weights.
        tokens: the sequence.
        dtype: short name of the target's weights and activations.
        store: where finished nodes are kept.
        target: digest of everything about the target that its numbers depend on.
        options: of the target.
        step: how progress calls this.
        progress: told of each node.
    """

    skeleton: Skeleton
    checkpoint: Checkpoint
    tokens: Tokens
    dtype: str
    store: RunStore
    target: str
    options: Mapping[str, str]
    step: str = "numerics"
    progress: Progress = silent
