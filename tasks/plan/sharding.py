"""Which part of each tensor a device of a layout holds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..inventory.record import TensorPattern
from ..parallel import split_kind


@dataclass(frozen=True)
class Layout:
    """A way of spreading a model over devices.

    Attributes:
        tensor: tensor-parallel degree.
        pipeline: pipeline-parallel degree.
        expert: expert-parallel degree; 1: experts are split like any other weight.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """Ranks in all; expert parallelism uses the ranks of tensor parallelism."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Heads:
    """What decides how attention is split.

    Attributes:
        query: attention heads.
        kv: KV heads; ignored for a latent cache.
        latent: whether the cache is one latent per token (MLA), which every rank keeps whole.
        experts: routed experts; 0 for none.
    """

    query: int
    kv: int
    latent: bool
    experts: int

    def kv_share(self, tensor: int) -> Fraction:
        """Part of all KV heads that one rank keeps: never less than one head, a latent always whole."""
        if self.latent or self.kv == 0:
            return Fraction(1)
        return Fraction(max(1, -(-self.kv // tensor)), self.kv)

    def expert_share(self, expert: int) -> Fraction:
        """Part of the routed experts on the fullest rank: whole experts, so the remainder counts."""
        return Fraction(-(-self.experts // expert), self.experts) if self.experts else Fraction(1)


def device_share(pattern: TensorPattern, layout: Layout, heads: Heads) -> Fraction:
    """Part of a tensor's bytes that the fullest rank of its pipeline stage holds."""
    if pattern.owner == "expert" and layout.expert > 1:
        return heads.expert_share(layout.expert)
    kind = split_kind(pattern)
    if kind in ("column", "row", "vocabulary"):
        return Fraction(1, layout.tensor)
    if kind == "kv":
        return heads.kv_share(layout.tensor)
    if kind == "fused":
        rows = heads.query + 2 * heads.kv
        query = Fraction(heads.query, layout.tensor)
        return (query + 2 * heads.kv * heads.kv_share(layout.tensor)) / rows if rows else Fraction(1)
    return Fraction(1)
