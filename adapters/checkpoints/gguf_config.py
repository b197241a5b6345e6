"""The model's numbers out of a GGUF header, in the words of config.json; for releases that carry no config.

The keys are those of ggml `docs/gguf.md`, section "Standardized key-value pairs".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "expert_feed_forward_length": "moe_intermediate_size",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "rope.freq_base": "rope_theta",
    "ssm.state_size": "ssm_state_size",
    "ssm.conv_kernel": "conv_kernel",
}


def gguf_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config that a header states; empty where it names no architecture.

    Args:
        values: key -> word or number, as `read_gguf_header` gives them.
    """
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        return {}
    config: dict[str, Any] = {"model_type": architecture}
    for key, word in _KEYS.items():
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            config[word] = value
    key_length = values.get(f"{architecture}.attention.key_length")
    if isinstance(key_length, int) and "kv_lora_rank" not in config:
        config["head_dim"] = key_length
    tokens = values.get("tokenizer.ggml.tokens#length")
    if isinstance(tokens, int):
        config.setdefault("vocab_size", tokens)
    return config
