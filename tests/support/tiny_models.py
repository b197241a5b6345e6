"""Tiny random transformers models, one for each family whose structure or checkpoint differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_BASE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

TINY: dict[str, dict[str, Any]] = {
    "llama": _BASE | {"tie_word_embeddings": True},
    "qwen3_moe": _BASE
    | {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0],
    },
    "mixtral": _BASE | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "deepseek_v3": _BASE
    | {
        "num_key_value_heads": 4,
        "head_dim": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
    "gpt_oss": _BASE
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "experts_per_token": 2},
    "gemma3_text": _BASE | {"sliding_window": 8, "query_pre_attn_scalar": 8, "num_hidden_layers": 7},
    "mamba2": {
        "vocab_size": 64,
        "hidden_size": 32,
        "state_size": 8,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 2,
        "num_hidden_layers": 3,
        "conv_kernel": 4,
        "expand": 2,
        "chunk_size": 8,
    },
    "qwen3_next": _BASE
    | {
        "num_hidden_layers": 4,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}
"""Model type -> values of its config."""

MORE: dict[str, dict[str, Any]] = {
    "qwen2": _BASE,
    "olmo2": _BASE,
    "gemma2": _BASE | {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "glm4_moe": _BASE
    | {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
}
"""Further families, for what is to hold of many."""


def save_tiny(model_type: str, folder: Path, *, dtype: str = "bfloat16", shard: str = "20KB") -> Path:
    """Writes a random model of that type as a sharded checkpoint and returns the folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(sum(model_type.encode()))
    config = AutoConfig.for_model(model_type, **(TINY | MORE)[model_type])
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    for name, value in model.state_dict().items():
        if value.is_floating_point():  # norms of ones and biases of zeros would hide a swap
            value.add_((torch.randn(value.shape) * (0.1 if "norm" in name else 0.02)).to(value.dtype))
    model.save_pretrained(folder, max_shard_size=shard)
    return folder
