"""Random models that take images, one for each kind of tower: grids and windows, fixed squares, tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.wide_models import spread_weights

_TEXT: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_TOWER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 4,
}  # fmt: skip
_IMAGE_TOKENS = {
    "image_token_id": 120, "video_token_id": 121, "vision_start_token_id": 122, "vision_end_token_id": 123,
}  # fmt: skip

VISION: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        **_IMAGE_TOKENS,
        "text_config": {**_TEXT, "model_type": "qwen2_5_vl_text", "rope_parameters": _ROTARY},
        "vision_config": {
            "depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64,
            "patch_size": 4, "window_size": 16, "fullatt_block_indexes": [2], "tokens_per_second": 2,
        },
    },
    "qwen3_vl": {
        **_IMAGE_TOKENS,
        "text_config": {**_TEXT, "model_type": "qwen3_vl_text", "rope_parameters": _ROTARY},
        "vision_config": {
            "depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64,
            "patch_size": 4, "deepstack_visual_indexes": [1], "num_position_embeddings": 64,
        },
    },
    "llava": {
        "image_token_index": 120, "image_token_id": 120,
        "text_config": {**_TEXT, "model_type": "llama"},
        "vision_config": {**_TOWER, "model_type": "clip_vision_model", "projection_dim": 64},
    },
    "gemma3": {
        "image_token_id": 120, "image_token_index": 120, "boi_token_index": 121, "eoi_token_index": 122,
        "mm_tokens_per_image": 16,
        "text_config": {**_TEXT, "sliding_window": 32, "query_pre_attn_scalar": 16, "num_hidden_layers": 2},
        "vision_config": _TOWER,
    },
    "smolvlm": {
        "scale_factor": 2, "image_token_id": 120,
        "text_config": {**_TEXT, "model_type": "llama"}, "vision_config": _TOWER,
    },
    "idefics3": {
        "scale_factor": 2, "image_token_id": 120,
        "text_config": {**_TEXT, "model_type": "llama"}, "vision_config": _TOWER,
    },
    "mistral3": {
        "image_token_index": 120, "image_token_id": 120, "spatial_merge_size": 2,
        "text_config": {**_TEXT, "model_type": "mistral"},
        "vision_config": {**_TOWER, "model_type": "pixtral", "head_dim": 16, "image_size": 64},
    },
    "mllama": {
        "image_token_index": 120,
        "text_config": {
            **_TEXT, "model_type": "mllama_text_model", "num_hidden_layers": 3, "cross_attention_layers": [1],
        },
        "vision_config": {
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_global_layers": 2,
            "attention_heads": 4, "image_size": 32, "patch_size": 4, "max_num_tiles": 4,
            "intermediate_layers_indices": [0, 1], "vision_output_dim": 192,
            "supported_aspect_ratios": [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]],
        },
    },
}  # fmt: skip
"""Model type -> values of its config."""


def save_vision(model_type: str, folder: Path, *, dtype: str = "bfloat16") -> Path:
    """Writes a random model of that type as a checkpoint and returns the folder."""
    import torch
    import transformers

    torch.manual_seed(sum(model_type.encode()))
    config = transformers.AutoConfig.for_model(model_type, **VISION[model_type])
    model: Any = transformers.AutoModelForImageTextToText.from_config(config, dtype=getattr(torch, dtype))
    spread_weights(model)
    model.save_pretrained(folder)
    return folder
