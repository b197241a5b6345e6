"""Activation shapes of each role: what enters, what it becomes inside, what leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .config_facts import ConfigFacts, is_count
from .state import key_value_heads

LATENT = ("mla", "sparse_indexed")
_VISION_PARTS = ("vision_config", "visual", "vit_config", "vision_tower_config", "image_config")
_VISION_WIDTH = ("hidden_size", "vt_hidden_size", "embed_dim", "width", "d_model")


class Shapes(NamedTuple):
    """Activations of one role; `?` for a size that the config does not state."""

    input: str = ""
    inner: str = ""
    output: str = ""


def role_shapes(facts: ConfigFacts, part: str, role: str, index: int, kind: str) -> Shapes:
    """Shapes of a role in a layer of that kind; all empty for what is not known.

    Args:
        facts: the config.
        part: of the model.
        role: word of the design's vocabulary.
        index: of the layer; 0 outside.
        kind: attention word of the layer.
    """
    known = facts.architecture
    stream = tensor("B", "T", known.hidden_size)
    if part in ("vision", "audio"):
        width = _tower_width(facts.config)
        return Shapes(tensor("P", width), "", tensor("P", width))
    if part == "projector":
        return Shapes(tensor("P", _tower_width(facts.config)), "", tensor("P", known.hidden_size))
    if role == "embedding":
        return Shapes("[B, T]", "", stream)
    if role == "head":
        return Shapes(stream, "", tensor("B", "T", known.vocab_size))
    if role == "norm":
        return Shapes(stream, "", stream)
    if role == "attention":
        return Shapes(stream, _attention(facts, index, kind), stream)
    if role == "router":
        return Shapes(stream, "", tensor("B", "T", known.experts))
    if role == "expert":
        width = known.moe_intermediate_size or known.intermediate_size
        routed = f"B*T*{known.top_k or '?'}"
        return Shapes(tensor(routed, known.hidden_size), tensor(routed, width), f"{stream} (combined)")
    if role == "shared_expert":
        return Shapes(stream, tensor("B", "T", shared_width(facts)), stream)
    if role == "dense_mlp":
        return Shapes(stream, tensor("B", "T", known.intermediate_size), stream)
    if role == "mtp":
        width = 2 * known.hidden_size
        return Shapes(f"{stream}, next tokens {stream}", f"joined {tensor('B', 'T', width)}", stream)
    return Shapes()


def tensor(*sizes: int | str) -> str:
    """E.g. `[B, T, 7168]`; `?` for 0."""
    return f"[{', '.join(str(size or '?') for size in sizes)}]"


def shared_width(facts: ConfigFacts) -> int:
    """Width of all shared experts of a layer together."""
    known = facts.architecture
    return (
        facts.integer("shared_expert_intermediate_size") or known.shared_experts * known.moe_intermediate_size
    )


def _attention(facts: ConfigFacts, index: int, kind: str) -> str:
    known = facts.architecture
    if kind in LATENT:
        rank, rope = facts.integer("kv_lora_rank"), facts.integer("qk_rope_head_dim")
        query = tensor("B", "T", known.heads, known.head_dim)
        out = tensor("B", "T", known.heads, facts.integer("v_head_dim"))
        keys = f", index keys {tensor('B', 'T', facts.integer('index_head_dim'))}"
        extra = keys if kind == "sparse_indexed" else ""
        return f"q {query}, latent {tensor('B', 'T', rank + rope)}{extra}, heads {out}"
    if kind == "linear":
        return _linear(facts)
    if kind == "state_space":
        size = facts.integer("ssm_state_size", "mamba_d_state", "state_size", "d_state")
        heads, dim = facts.integer("mamba_num_heads", "mamba_n_heads"), facts.integer("mamba_head_dim")
        if heads and dim:
            return f"x {tensor('B', 'T', heads, dim)}, state {tensor('B', heads, dim, size)}"
        inner = (facts.integer("mamba_expand", "expand") or 2) * known.hidden_size
        return f"x {tensor('B', 'T', inner)}, state {tensor('B', inner, size)}"
    if not kind:
        return ""
    heads, key_dim, value_dim = key_value_heads(facts, index, kind)
    query = tensor("B", "T", known.heads, key_dim)
    if key_dim == value_dim:
        return f"q {query}, k and v {tensor('B', 'T', heads, key_dim)}"
    return f"q {query}, k {tensor('B', 'T', heads, key_dim)}, v {tensor('B', 'T', heads, value_dim)}"


def _linear(facts: ConfigFacts) -> str:
    key_heads, value_heads = facts.integer("linear_num_key_heads"), facts.integer("linear_num_value_heads")
    key_dim, value_dim = facts.integer("linear_key_head_dim"), facts.integer("linear_value_head_dim")
    nested = facts.text.get("linear_attn_config")
    if not value_heads and isinstance(nested, Mapping):
        inner = ConfigFacts(facts.architecture, {}, nested, "", {})
        key_heads = value_heads = inner.integer("num_heads")
        key_dim = value_dim = inner.integer("head_dim")
    if not value_heads:
        return f"convolution over {facts.integer('conv_L_cache') or '?'} tokens"
    keys, values = tensor("B", "T", key_heads, key_dim), tensor("B", "T", value_heads, value_dim)
    return f"q and k {keys}, v {values}, state {tensor('B', value_heads, key_dim, value_dim)}"


def _tower_width(config: Mapping[str, Any]) -> int:
    for part in _VISION_PARTS:
        held = config.get(part)
        if isinstance(held, Mapping):
            for key in _VISION_WIDTH:
                if is_count(held.get(key)) and held[key]:
                    return int(held[key])
    return 0
