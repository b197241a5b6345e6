"""Random models wide enough that what is measured over tokens and channels means something.

Weights have the spread that keeps activations at one, so that attention and routers are neither flat nor
decided, as in a trained model.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

_BASE: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}

WIDE: dict[str, dict[str, Any]] = {
    "llama": _BASE
    | {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        }
    },
    "qwen2": _BASE,
    "olmo2": _BASE,
    "gemma2": _BASE | {"sliding_window": 32, "query_pre_attn_scalar": 16},
    "gemma3_text": _BASE | {"sliding_window": 32, "query_pre_attn_scalar": 16, "num_hidden_layers": 6},
    "gpt_oss": _BASE
    | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 32, "intermediate_size": 64},
    "deepseek_v3": _BASE
    | _EXPERTS
    | {
        "num_key_value_heads": 8, "q_lora_rank": 48, "kv_lora_rank": 64, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "head_dim": 8, "v_head_dim": 16, "n_routed_experts": 16, "n_group": 4,
        "topk_group": 2, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "rope_parameters": _YARN,
        "routed_scaling_factor": 2.5,
    },
    "mixtral": _BASE | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": _BASE
    | _EXPERTS
    | {"num_experts": 8, "decoder_sparse_step": 1, "mlp_only_layers": [0], "norm_topk_prob": True},
    "glm4_moe": _BASE
    | _EXPERTS
    | {
        "n_routed_experts": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.5, "attention_bias": True,
    },
    "mamba2": {
        "vocab_size": 256, "hidden_size": 128, "state_size": 16, "num_heads": 8, "head_dim": 32,
        "n_groups": 2, "num_hidden_layers": 3, "conv_kernel": 4, "expand": 2, "chunk_size": 16,
    },
    "qwen3_next": _BASE
    | _EXPERTS
    | {
        "num_hidden_layers": 4, "linear_num_value_heads": 8, "linear_num_key_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        "num_experts": 8, "shared_expert_intermediate_size": 64, "norm_topk_prob": True,
    },
    "phi3": _BASE,
    "stablelm": _BASE | {"use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "qwen2_5_vl": {
        "image_token_id": 250, "video_token_id": 251, "vision_start_token_id": 252,
        "vision_end_token_id": 253,
        "text_config": _BASE
        | {
            "model_type": "qwen2_5_vl_text",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        },
        "vision_config": {
            "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 128,
            "patch_size": 4, "window_size": 16, "fullatt_block_indexes": [1], "tokens_per_second": 2,
        },
    },
}  # fmt: skip
"""Model type -> values of its config: dense, grouped heads, latent and sliding attention, linear attention, a
state space, five kinds of experts, a vision-language model."""


def save_wide(model_type: str, folder: Path, *, dtype: str = "bfloat16") -> Path:
    """Writes a random model of that type as a checkpoint and returns the folder."""
    import torch
    import transformers

    torch.manual_seed(sum(model_type.encode()))
    config = transformers.AutoConfig.for_model(model_type, **WIDE[model_type])
    family = "ImageTextToText" if "vision_config" in WIDE[model_type] else "CausalLM"
    made: Any = getattr(transformers, f"AutoModelFor{family}")
    model = made.from_config(config, dtype=getattr(torch, dtype))
    spread_weights(model)
    model.save_pretrained(folder)
    return folder


def spread_weights(model: Any) -> None:
    """Draws the weights of a model anew, with the spread that keeps activations at one."""
    import torch

    embeddings = {id(model.get_input_embeddings().weight)}
    with torch.no_grad():
        for name, value in model.state_dict(keep_vars=True).items():
            if not value.is_floating_point():
                continue
            if value.dim() < 2:  # norms of ones and biases of zeros would hide what they do
                value.add_((torch.randn(value.shape) * 0.1).to(value.dtype))
            else:
                spread = 1.0 if id(value) in embeddings else 1.0 / math.sqrt(_inputs(name, value))
                value.copy_((torch.randn(value.shape) * spread).to(value.dtype))


def _inputs(name: str, value: Any) -> int:
    """How many products a sum over this weight has."""
    return int(value.shape[-1]) if value.dim() < 4 and "conv" not in name else int(value[0].numel())
