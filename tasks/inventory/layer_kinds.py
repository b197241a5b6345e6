"""What each layer is, by the config's many dialects: its attention word and its feed-forward."""

from __future__ import annotations

from collections.abc import Sequence

from .config_facts import ConfigFacts

# Words of published `layer_types` and `layers_block_type` lists -> the design's vocabulary.
_WORDS = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "sliding_attention": "sliding",
    "chunked_attention": "chunked", "linear_attention": "linear", "conv": "linear", "mamba": "state_space",
    "mamba2": "state_space", "recurrent": "linear", "moe": "", "mlp": "", "hybrid": "state_space",
    "window_attention": "sliding", "hybrid_sliding": "sliding", "reference_sliding_attention": "sliding",
    "indexed_attention": "full", "compressed_sparse_attention": "full", "minimax_m3_sparse": "full",
    "heavily_compressed_attention": "full", "sparse": "full", "dense": "full",
    "local_attention": "sliding", "local": "sliding", "global": "full",
    "full": "full", "sliding": "sliding", "chunked": "chunked", "linear": "linear", "gdn": "linear",
    "gated_deltanet": "linear", "kda": "linear", "deltanet": "linear", "lightning_attention": "linear",
    "rwkv": "linear", "short_conv": "linear", "ssm": "state_space", "recurrent_attention": "linear",
}  # fmt: skip
# Letters of NemotronH's `hybrid_override_pattern`; `-` is a feed-forward alone.
_LETTERS = {"M": "state_space", "*": "full", "-": "", "E": ""}


def layer_kinds(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """The attention word of each layer (empty: the layer has none) and the config key that says so."""
    listed, key = listed_words(facts)
    if layers and len(listed) in (layers, layers + facts.mtp_layers):  # some list prediction layers, too
        kinds: Sequence[str] = [_WORDS.get(word, "full") for word in listed[:layers]]
        if _is_mamba(facts):
            kinds = ["state_space" if kind == "linear" else kind for kind in kinds]
        return _with_latent(facts, kinds), key
    for derive in (_hybrid_pattern, _kimi_linear, _interval, _jamba, _mamba, _rwkv, _sliding):
        kinds, key = derive(facts, layers)
        if kinds:
            return _with_latent(facts, kinds), key
    return _with_latent(facts, ["full"] * layers), ""


def layer_words(facts: ConfigFacts, layers: int) -> Sequence[str]:
    """The config's own word for each layer, so that what differs by it is not taken for the same."""
    listed = listed_words(facts)[0]
    if layers and len(listed) in (layers, layers + facts.mtp_layers):
        return listed[:layers]
    pattern = facts.text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:
        return list(pattern)
    return layer_kinds(facts, layers)[0]


def is_known_word(word: str) -> bool:
    """Whether a word of a list of layer types has a meaning here."""
    return word in _WORDS


def feed_forwards(facts: ConfigFacts, layers: int) -> Sequence[str]:
    """`dense` or `moe` for each layer, from the config alone."""
    if not facts.architecture.experts:
        return ["dense"] * layers
    listed = facts.integers("moe_layer_freq")
    if len(listed) == layers and layers:
        return ["moe" if flag else "dense" for flag in listed]
    first = facts.integer("first_k_dense_replace", "moe_layer_start_index")
    every = facts.integer("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    dense = set(facts.integers("mlp_only_layers"))
    offset = every - 1 if facts.integer("decoder_sparse_step", "interleave_moe_layer_step") else 0
    if facts.integer("expert_layer_period"):
        every, offset = facts.integer("expert_layer_period"), facts.integer("expert_layer_offset")
    return [
        "moe" if i >= first and i not in dense and i % every == offset % every else "dense"
        for i in range(layers)
    ]


def listed_words(facts: ConfigFacts) -> tuple[Sequence[str], str]:
    """What the config calls each layer, and the key; empty where it lists nothing."""
    for key in ("layer_types", "layers_block_type", "attn_type_list"):
        if facts.words(key):
            return facts.words(key), key
    return (), ""


def _with_latent(facts: ConfigFacts, kinds: Sequence[str]) -> Sequence[str]:
    """Full attention whose cache is a latent vector is `mla`; with an indexer it is `sparse_indexed`."""
    if not facts.integer("kv_lora_rank"):
        return kinds
    latent = "sparse_indexed" if facts.integer("index_topk") else "mla"
    return [latent if kind == "full" else kind for kind in kinds]


def _hybrid_pattern(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    pattern = facts.text.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers:
        return (), ""
    return [_LETTERS.get(letter, "") for letter in pattern], "hybrid_override_pattern"


def _kimi_linear(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """Kimi-Linear lists its full-attention layers, counted from 1; a list with a 0 counts from there."""
    config = facts.text.get("linear_attn_config")
    full = config.get("full_attn_layers") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(full, list):
        return (), ""
    linear = config.get("kda_layers")
    first = 0 if 0 in full or (isinstance(linear, list) and 0 in linear) else 1
    return ["full" if i + first in full else "linear" for i in range(layers)], "linear_attn_config"


def _interval(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """Qwen3-Next: every n-th layer has full attention, the others are linear."""
    every = facts.integer("full_attention_interval")
    if not every or not facts.integer("linear_num_value_heads"):
        return (), ""
    return ["linear" if (i + 1) % every else "full" for i in range(layers)], "full_attention_interval"


def _jamba(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    every = facts.integer("attn_layer_period")
    if not every:
        return (), ""
    offset = facts.integer("attn_layer_offset") % every
    return ["full" if i % every == offset else "state_space" for i in range(layers)], "attn_layer_period"


def _mamba(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """A state size and no attention heads: every layer is a state space."""
    key = next((key for key in ("state_size", "d_state") if facts.integer(key)), "")
    if not key or "num_attention_heads" in facts.text:
        return (), ""
    return ["state_space"] * layers, key


def _is_mamba(facts: ConfigFacts) -> bool:
    """Whether the linear layers are state spaces: transformers 5 lists Granite's as `linear_attention`."""
    return bool(facts.integer("mamba_d_state")) and not facts.integer(
        "linear_num_value_heads", "conv_L_cache"
    )


def _rwkv(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """Its class, not its config, has no attention at all."""
    is_rwkv = facts.text_type.startswith("rwkv")
    return (["linear"] * layers, "model_type") if is_rwkv else ((), "")


def _sliding(facts: ConfigFacts, layers: int) -> tuple[Sequence[str], str]:
    """Windows by a switch, by a pattern, or on all layers, as the published families do it."""
    chunk = facts.integer("attention_chunk_size")
    rope = facts.integers("no_rope_layers")
    if chunk and len(rope) == layers:  # Llama 4: layers with rope attend within their chunk
        return ["chunked" if flag else "full" for flag in rope], "no_rope_layers"
    if not facts.architecture.sliding_window:
        return (), ""
    every = facts.integer("sliding_window_pattern")
    if every:  # Gemma 3, Cohere 2: the last of each group of n is full
        return ["sliding" if (i + 1) % every else "full" for i in range(layers)], "sliding_window_pattern"
    if facts.text_type == "gemma2":  # its class, not its config, alternates
        return ["full" if i % 2 else "sliding" for i in range(layers)], "model_type"
    if "use_sliding_window" in facts.text:
        first = facts.integer("max_window_layers") if facts.text["use_sliding_window"] is True else layers
        return ["sliding" if i >= first else "full" for i in range(layers)], "use_sliding_window"
    return ["sliding"] * layers, "sliding_window"
