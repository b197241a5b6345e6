"""What one comparison is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton

from ..precision.lowerings import Lowering
from ..prompts.passes import Pass
from ..prompts.tokens import Tokens

REFERENCE_DTYPE = {"fp32": "fp64", "fp64": "fp64", "bf16": "fp32", "fp16": "fp32"}
"""Precision of weights and activations -> of the reference."""


@dataclass(frozen=True)
class Case:
    """What is compared with what.

    Attributes:
        skeleton: of the model.
        checkpoint: its weights.
        tokens: of the main pass.
        passes: every forward, the main one first.
        dtype: short name of the target's weights and activations.
        store: where finished nodes are kept.
        target: digest of everything about the target that its numbers depend on.
        options: of the target.
        memory: bytes that this process and its workers may take together.
        step: how progress calls this.
        progress: told of each node.
        fake: how the target holds matrices and their inputs where that is narrower than `dtype`, in which its
            weights and activations are carried; the noise arm is then fake-quantised so.
    """

    skeleton: Skeleton
    checkpoint: Checkpoint
    dtype: str
    store: RunStore
    target: str
    options: Mapping[str, str]
    tokens: Tokens = field(default_factory=lambda: Tokens(()))
    passes: Sequence[Pass] = ()
    memory: int = 8 * 2**30
    step: str = "numerics"
    progress: Progress = silent
    fake: Lowering | None = None

    @property
    def precision(self) -> str:
        """Short name of what the target computes in."""
        return self.fake.dtype if self.fake is not None else self.dtype

    @property
    def reference_dtype(self) -> str:
        """Short name of the reference's precision."""
        return REFERENCE_DTYPE[self.dtype]
