"""How the memory that a comparison may take is shared out."""

from __future__ import annotations

from ... import thresholds
from .case import Case


def prefetch_bytes(memory: int) -> int:
    """Bytes of the next node's tensors that may lie ready."""
    return max(0, memory - thresholds.NUMERICS_BASE_BYTES) // 8


def chunk_of(memory: int, expert_bytes: int) -> int:
    """Experts that may be in memory at a time, in the reference's precision and in the target's beside it.

    Args:
        memory: bytes of the whole comparison.
        expert_bytes: one expert in fp32.
    """
    room = max(0, memory - thresholds.NUMERICS_BASE_BYTES) // 4
    return max(1, min(room, thresholds.NUMERICS_CHUNK_BYTES) // max(1, expert_bytes + expert_bytes // 2))


def small_caches(case: Case) -> bool:
    """Whether the caches of all layers, on all streams, are small enough to stay until the end.

    Else those of a node go when it is done, which models whose layers share a cache do not survive.
    """
    cached = max((step.cached for step in case.passes), default=0)
    elements = sum(
        node.state.per_sequence + node.state.per_token * (min(cached, node.state.window) if node.state.window
                                                          else cached)
        for node in case.skeleton.nodes
    )  # fmt: skip
    return elements * thresholds.NUMERICS_CACHE_BYTES_PER_ELEMENT <= thresholds.NUMERICS_CACHE_BYTES
