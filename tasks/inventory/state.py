"""Bytes that a sequence keeps between calls, layer by layer: KV and latent caches, recurrent states.

Everything is counted at two bytes an element (bf16), whatever a stack makes of it, so that numbers compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .config_facts import ConfigFacts
from .layer_kinds import listed_words

BYTES_PER_ELEMENT = 2
_LIGHTNING = ("minimax", "bailing_moe_linear")  # their linear layers keep a matrix a head


@dataclass(frozen=True)
class LayerState:
    """What one layer keeps.

    Attributes:
        per_token: bytes per token and sequence, before any window is full.
        window: tokens after which that stops growing; 0: never.
        per_sequence: bytes per sequence, whatever its length.
        formula: how it was computed; empty where the config does not give what is needed.
    """

    per_token: int = 0
    window: int = 0
    per_sequence: int = 0
    formula: str = ""


ENCODER = LayerState(formula="an encoder keeps nothing between calls")


def with_cross_attention(facts: ConfigFacts, state: LayerState) -> LayerState:
    """A decoder layer that also keeps keys and values of what the encoder gave."""
    if not state.per_token:
        return state
    frames = facts.integer("max_source_positions")  # Whisper pads every input to this length
    if facts.text_type == "whisper" and frames:
        formula = f"{state.formula}; cross-attention the same for {frames} encoder positions"
        return replace(state, per_sequence=state.per_sequence + frames * state.per_token, formula=formula)
    formula = f"{state.formula}; cross-attention the same again for each encoder token, not counted"
    return replace(state, formula=formula)


def layer_states(facts: ConfigFacts, kinds: Sequence[str]) -> Sequence[LayerState]:
    """The state of each layer, from its kind and the config."""
    shared = facts.integer("num_kv_shared_layers")  # Gemma 3n: the last layers reuse an earlier layer's cache
    first_shared = len(kinds) - shared if 0 < shared < len(kinds) else len(kinds)
    return [
        LayerState(formula="shares an earlier layer's cache") if i >= first_shared else _state(facts, i, kind)
        for i, kind in enumerate(kinds)
    ]


def _state(facts: ConfigFacts, index: int, kind: str) -> LayerState:
    if kind == "":
        return LayerState(formula="no attention")
    if kind in ("mla", "sparse_indexed"):
        return _latent(facts, kind)
    if kind == "linear":
        return _linear(facts)
    if kind == "state_space":
        return _state_space(facts)
    return _key_value(facts, index, kind)


def _key_value(facts: ConfigFacts, index: int, kind: str) -> LayerState:
    """Grouped-query attention: keys and values of each KV head."""
    heads, key_dim, value_dim = key_value_heads(facts, index, kind)
    if not heads or not key_dim:
        return LayerState()
    window = {
        "sliding": facts.architecture.sliding_window,
        "chunked": facts.integer("attention_chunk_size"),
    }.get(kind, 0)
    formula = f"{heads} KV heads x ({key_dim} + {value_dim}) x {BYTES_PER_ELEMENT} B"
    return LayerState(heads * (key_dim + value_dim) * BYTES_PER_ELEMENT, window, formula=formula)


def key_value_heads(facts: ConfigFacts, index: int, kind: str) -> tuple[int, int, int]:
    """KV heads of a layer, width of a key, width of a value; 0 for what the config does not say."""
    per_layer = facts.integers("num_key_value_heads")
    heads = per_layer[index] if index < len(per_layer) else facts.architecture.kv_heads
    key_dim = facts.architecture.head_dim
    value_dim = facts.integer("v_head_dim") or key_dim
    if kind == "full" and facts.integer("global_head_dim"):  # Gemma 4 gives its full layers wider heads
        key_dim = value_dim = facts.integer("global_head_dim")
        heads = facts.integer("num_global_key_value_heads") or heads
    return heads, key_dim, value_dim


def _latent(facts: ConfigFacts, kind: str) -> LayerState:
    """Latent attention keeps the compressed vector and the rotary key (DeepSeek-V2 paper, section 2.1)."""
    rank, rope = facts.integer("kv_lora_rank"), facts.integer("qk_rope_head_dim")
    index = facts.integer("index_head_dim") if kind == "sparse_indexed" else 0
    terms = f"{rank} + {rope}" + (f" + {index}" if index else "")
    formula = f"({terms}) x {BYTES_PER_ELEMENT} B"
    return LayerState((rank + rope + index) * BYTES_PER_ELEMENT, formula=formula)


def _linear(facts: ConfigFacts) -> LayerState:
    """Gated delta rule (Qwen3-Next), Kimi Delta Attention, or a short convolution (LFM2)."""
    value_heads, key_heads = facts.integer("linear_num_value_heads"), facts.integer("linear_num_key_heads")
    key_dim, value_dim = facts.integer("linear_key_head_dim"), facts.integer("linear_value_head_dim")
    if value_heads and key_dim:
        channels = 2 * key_heads * key_dim + value_heads * value_dim
        taps = facts.integer("linear_conv_kernel_dim")
        return _fixed(channels * taps, value_heads * key_dim * value_dim)
    heads, dim = facts.integer("linear_num_heads"), facts.integer("linear_head_dim")
    if heads and dim:  # Kimi-Linear as transformers 5 writes it
        return _fixed(3 * heads * dim * facts.integer("linear_conv_kernel_dim"), heads * dim * dim)
    nested = facts.text.get("linear_attn_config")
    if isinstance(nested, dict):
        inner = ConfigFacts(facts.architecture, {}, nested, "", {})
        heads, dim, taps = (inner.integer(key) for key in ("num_heads", "head_dim", "short_conv_kernel_size"))
        return _fixed(3 * heads * dim * taps, heads * dim * dim) if heads and dim else LayerState()
    model, hidden = facts.text_type, facts.architecture.hidden_size
    if model.startswith("rwkv"):
        return _rwkv(facts, model, hidden)
    heads, dim = facts.architecture.heads, facts.architecture.head_dim
    if heads and dim and (model.startswith(_LIGHTNING) or "lightning_attention" in listed_words(facts)[0]):
        return _fixed(0, heads * dim * dim)
    taps = facts.integer("conv_L_cache")
    return _fixed(hidden * taps, 0) if taps and hidden else LayerState()


def _rwkv(facts: ConfigFacts, model: str, hidden: int) -> LayerState:
    """Two shifted inputs; beside them three vectors a channel (version 4) or a matrix a head (later)."""
    width = facts.integer("attention_hidden_size") or hidden
    head = facts.integer("head_size", "head_dim")
    if not hidden or (model != "rwkv" and not head):
        return LayerState()
    return _fixed(2 * hidden, 3 * width if model == "rwkv" else width * head)


def _state_space(facts: ConfigFacts) -> LayerState:
    """Mamba 2 (heads) or Mamba 1 (channels): the convolution's window and the recurrent state."""
    size = facts.integer("ssm_state_size", "mamba_d_state", "state_size", "d_state")
    taps = facts.integer("conv_kernel", "mamba_d_conv", "d_conv")
    heads = facts.integer("mamba_num_heads", "mamba_n_heads")
    dim = facts.integer("mamba_head_dim", "mamba_d_head")
    if "num_attention_heads" not in facts.text:  # a pure Mamba names its heads without a prefix
        heads, dim = heads or facts.integer("num_heads"), dim or facts.integer("head_dim")
    expand = facts.integer("mamba_expand", "expand") or 2
    inner = heads * dim or expand * facts.architecture.hidden_size
    if not size or not inner:
        return LayerState()
    groups = facts.integer("n_groups", "mamba_n_groups") if heads else 0
    return _fixed((inner + 2 * groups * size) * taps, inner * size)


def _fixed(convolution: int, recurrent: int) -> LayerState:
    formula = f"(convolution {convolution} + recurrent {recurrent}) x {BYTES_PER_ELEMENT} B"
    return LayerState(per_sequence=(convolution + recurrent) * BYTES_PER_ELEMENT, formula=formula)
