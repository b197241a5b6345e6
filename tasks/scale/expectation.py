"""What a batch should take, computed from config and header bytes before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from day0.adapters.base.dtypes import BITS

from ..inventory.record import InventoryFacts, Layer

_BF16_BYTES = 2
# Tensors of the residual's size that a block holds at once: residual, norm, query, output, and one temporary.
_RESIDUALS = 5
# Tensors of the feed-forward's size: gate, up, activation, product.
_FEED_FORWARDS = 4
_FP32_BYTES = 4


@dataclass(frozen=True)
class Expectation:
    """One point before it runs.

    Attributes:
        state_bytes: KV cache and recurrent states of the layers that run, for prompt and new tokens.
        activation_bytes: of the widest block during the prefill, logits included.
        prefill_flops: multiplications and additions behind the first token.
    """

    state_bytes: int
    activation_bytes: int
    prefill_flops: int

    @property
    def memory_bytes(self) -> int:
        """Above the loaded model."""
        return self.state_bytes + self.activation_bytes


def expect(
    facts: InventoryFacts, layers: Sequence[int], dtype: str, batch: int, length: int, new_tokens: int
) -> Expectation:
    """Memory and work of one batch on the layers that the cut-down release holds.

    Args:
        facts: of the whole release.
        layers: original indices of the layers that run.
        dtype: of weights, activations and cache.
        batch: sequences.
        length: prompt tokens of each.
        new_tokens: generated of each.
    """
    architecture = facts.architecture
    width = BITS[dtype] // 8
    kept = [layer for layer in facts.layers if layer.index in set(layers)]
    state = sum(_state_bytes(layer, length + new_tokens) for layer in kept) * width // _BF16_BYTES
    tokens = batch * length
    # Eager attention holds its scores and their fp32 softmax; a fused kernel holds less.
    scores = batch * architecture.heads * length * length * (width + _FP32_BYTES)
    expanded = 2 * tokens * architecture.heads * architecture.head_dim * width
    blocks = tokens * width * (_RESIDUALS * architecture.hidden_size + _FEED_FORWARDS * _widest(facts))
    logits = batch * architecture.vocab_size * (width + _FP32_BYTES)
    return Expectation(
        state_bytes=state * batch,
        activation_bytes=scores + expanded + blocks + logits,
        prefill_flops=_flops(facts, kept, batch, length),
    )


def expected_weight_bytes(facts: InventoryFacts, cut_bytes: int, dtype: str) -> int:
    """Bytes of the cut-down release once its plain weights are in `dtype`; 0 where they are packed."""
    stored = facts.architecture.dtype
    if facts.quantization.scheme != "none" or stored not in BITS:
        return 0
    return cut_bytes * BITS[dtype] // BITS[stored]


def _state_bytes(layer: Layer, tokens: int) -> int:
    held = min(tokens, layer.window) if layer.window else tokens
    return layer.kv_bytes_per_token * held + layer.state_bytes_per_sequence


def _widest(facts: InventoryFacts) -> int:
    architecture = facts.architecture
    routed = architecture.moe_intermediate_size or architecture.intermediate_size
    return max(architecture.intermediate_size, routed * max(architecture.top_k, 1))


def _flops(facts: InventoryFacts, layers: Sequence[Layer], batch: int, length: int) -> int:
    """Two operations for each active weight and token, the scores, and the head once for each sequence."""
    architecture = facts.architecture
    share = architecture.top_k, architecture.experts
    weights = 0
    for layer in layers:
        experts = layer.roles["expert"].elements if "expert" in layer.roles else 0
        active = experts * share[0] // share[1] if all(share) else experts
        weights += layer.params - experts + active
    scores = 4 * len(layers) * architecture.heads * architecture.head_dim * length * length
    head = 2 * architecture.hidden_size * architecture.vocab_size
    return batch * (2 * weights * length + scores + head)
