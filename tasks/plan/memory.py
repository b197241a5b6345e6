"""Bytes per device, exact where headers and config give them: weights, KV cache, what is held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, lcm

from ..inventory.record import Architecture, InventoryFacts, Layer, TensorPattern
from ..parallel import split_kind, stage_layers
from ..thresholds import (
    PLAN_BASE_RESERVE,
    PLAN_BATCHED_TOKENS,
    PLAN_COMMUNICATION_RESERVE,
    PLAN_KV_BLOCK,
    PLAN_VOCABULARY_PADDING,
)
from .sharding import Heads, Layout, device_share

LATENT_KINDS = ("mla", "sparse_indexed")
HEADLESS_KINDS = ("linear", "state_space")
_BF16_BYTES = 2


@dataclass(frozen=True)
class Stage:
    """What the fullest rank of one pipeline stage holds.

    Attributes:
        weights: bytes.
        growing: KV bytes per token that never stop growing.
        windows: window in tokens -> KV bytes per token of the layers with that window.
        state: bytes per sequence that do not grow.
    """

    weights: int
    growing: int
    windows: Mapping[int, int]
    state: int

    @property
    def kv_per_token(self) -> int:
        """Before any window is full."""
        return self.growing + sum(self.windows.values())

    def sequence_bytes(self, tokens: int) -> int:
        """What one sequence of that length takes, by vLLM's admission rule.

        A sliding layer holds its window less one plus one step's tokens, rounded up to blocks, and one block
        more: a step in which a long prompt is taken in needs both at once.
        """
        total = self.state + self.growing * _blocks(tokens)
        for window, width in self.windows.items():
            held = _blocks(window - 1 + PLAN_BATCHED_TOKENS) + PLAN_KV_BLOCK
            total += width * min(_blocks(tokens), held)
        return total

    def longest(self, available: int, limit: int) -> int:
        """Most tokens, up to `limit`, that one sequence can hold in so many bytes; 0 for none."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sequence_bytes(middle) <= available else (low, middle - 1)
        return low


def _blocks(tokens: int) -> int:
    return ceil(tokens / PLAN_KV_BLOCK) * PLAN_KV_BLOCK


def heads_of(facts: InventoryFacts) -> Heads:
    """What decides how attention is split."""
    known = facts.architecture
    latent = any(layer.kind in LATENT_KINDS for layer in facts.layers)
    return Heads(query=known.heads, kv=known.kv_heads, latent=latent, experts=known.experts)


def stages_of(
    facts: InventoryFacts, layout: Layout, *, bf16_weights: bool = False, kv_scale: float = 1.0
) -> list[Stage]:
    """What each pipeline stage's fullest rank holds.

    Multi-token-prediction layers are left out: engines load them only for speculative decoding. Vision and
    whatever is not known to be split is counted on every rank of the first stage.

    Args:
        facts: of the inventory.
        layout: degrees.
        bf16_weights: whether the weights are first converted to bf16.
        kv_scale: bytes of a KV element over those of bf16.
    """
    heads = heads_of(facts)
    per_layer, first, last = _weights(facts, layout, heads, bf16_weights)
    found = []
    for number, layers in enumerate(stage_layers(len(facts.layers), layout.pipeline)):
        weights = sum(per_layer.get(facts.layers[position].index, 0) for position in layers)
        weights += first if number == 0 else 0
        weights += last if number == layout.pipeline - 1 else 0
        cached = [facts.layers[position] for position in layers]
        found.append(_stage(weights, cached, layout, heads, kv_scale))
    return found


def _stage(weights: int, layers: Sequence[Layer], layout: Layout, heads: Heads, kv_scale: float) -> Stage:
    growing, state = 0, 0
    windows: dict[int, int] = {}
    for layer in layers:
        share = 1 if layer.kind in LATENT_KINDS else heads.kv_share(layout.tensor)
        width = ceil(layer.kv_bytes_per_token * share * kv_scale)
        if layer.window:
            windows[layer.window] = windows.get(layer.window, 0) + width
        else:
            growing += width
        state += ceil(layer.state_bytes_per_sequence / layout.tensor)
    return Stage(weights, growing, windows, state)


def _weights(
    facts: InventoryFacts, layout: Layout, heads: Heads, bf16_weights: bool
) -> tuple[dict[int, int], int, int]:
    """Bytes on the fullest rank: by layer index, what the first stage adds, what the last adds."""
    per_layer: dict[int, int] = {}
    first, last = 0, 0
    for pattern in facts.patterns:
        if pattern.part == "mtp":
            continue
        share = device_share(pattern, layout, heads)
        held = _bytes(pattern, bf16_weights)
        if split_kind(pattern) == "vocabulary":
            held = _padded(pattern, held, layout.tensor)
        layers = parse_indices(pattern.layers) if pattern.part == "text" else ()
        each = ceil(held * share / max(1, len(layers)))
        for index in layers:
            per_layer[index] = per_layer.get(index, 0) + each
        if layers:
            continue
        at_end = pattern.owner in ("head", "norm")
        last += each if at_end else 0
        first += 0 if at_end else each
    tied = not any(pattern.owner == "head" for pattern in facts.patterns)
    if tied and layout.pipeline > 1:  # the last stage needs the embedding as its head
        last += sum(
            ceil(_padded(pattern, _bytes(pattern, bf16_weights), layout.tensor) / layout.tensor)
            for pattern in facts.patterns
            if pattern.owner == "embedding" and pattern.part == "text"
        )
    return per_layer, first, last


def _bytes(pattern: TensorPattern, bf16_weights: bool) -> int:
    """As stored; or, converted to bf16, two bytes a parameter and nothing for side tensors."""
    return pattern.params * _BF16_BYTES if bf16_weights else pattern.bytes


def _padded(pattern: TensorPattern, held: int, tensor: int) -> int:
    """Bytes of an embedding once its rows are padded to a multiple that divides over the ranks."""
    rows = pattern.shape[0]
    unit = lcm(PLAN_VOCABULARY_PADDING, tensor)
    return held * (ceil(rows / unit) * unit) // rows if rows else held


def reserve_bytes(architecture: Architecture, layout: Layout) -> int:
    """Bytes per device held back for activations, graphs and communication; an estimate.

    Activations: at the widest point of a step each token has its hidden state three times (input, residual,
    output) and a gate, an up and a product of the feed-forward's width (dense, or top-k experts);
    bf16. Logits: one row a sequence, in fp32, of at most 256 sequences.
    """
    hidden = architecture.hidden_size
    dense = 3 * architecture.intermediate_size / layout.tensor
    expert_width = architecture.moe_intermediate_size or architecture.intermediate_size
    if layout.expert > 1:  # a rank's own experts see a part of the tokens, at times twice its share
        routed = max(1.0, 2 * architecture.top_k / layout.expert) * (hidden + 3 * expert_width)
    else:
        routed = architecture.top_k * (hidden + 3 * expert_width / layout.tensor)
    activations = PLAN_BATCHED_TOKENS * _BF16_BYTES * (3 * hidden + max(dense, routed))
    logits = 256 * 4 * architecture.vocab_size
    communication = PLAN_COMMUNICATION_RESERVE if layout.devices > 1 else 0
    return ceil(PLAN_BASE_RESERVE + activations + logits + communication)


def parse_indices(text: str) -> tuple[int, ...]:
    """The indices that `0-20,22-25` or `0-22:2` stands for."""
    indices: list[int] = []
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        indices.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(indices)
