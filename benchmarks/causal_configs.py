"""A config for each causal-LM model type of the installed transformers, from its class's own defaults.

Defaults alone describe no model for some types: what a release states and a default leaves out is added, by
rules where a rule is enough, else with the values of a published config.json.
"""

from __future__ import annotations

from typing import Any

from day0.adapters.models.phase_inputs import stated, text_config

PUBLISHED: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},  # ibm-ai-platform/Bamba-9B
    "dbrx": {"attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}},  # databricks/dbrx-base
    "deepseek_v2": {  # deepseek-ai/DeepSeek-V2
        "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy", "num_experts_per_tok": 6,
        "n_routed_experts": 160, "n_shared_experts": 2, "moe_intermediate_size": 1536,
        "first_k_dense_replace": 1, "num_hidden_layers": 60, "hidden_size": 5120, "q_lora_rank": 1536,
        "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 12288,
    },
    "granitemoehybrid": {  # ibm-granite/granite-4.0-h-tiny
        "num_hidden_layers": 40, "num_local_experts": 64, "num_experts_per_tok": 6,
        "position_embedding_type": "nope",
        "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
    },
    "hunyuan_v1_dense": {
        "head_dim": 128, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    },
    "hunyuan_v1_moe": {"head_dim": 128, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
    "lfm2_moe": {  # LiquidAI/LFM2-8B-A1B
        "num_hidden_layers": 24,
        "layer_types": [
            "full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)
        ],
    },
    "ministral": {  # mistralai/Ministral-8B-Instruct-2410
        "head_dim": 128, "num_hidden_layers": 36, "intermediate_size": 12288, "vocab_size": 131072,
    },
    "dots1": {  # rednote-hilab/dots.llm1.base
        "n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1,
        "topk_group": 1, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
    },
}  # fmt: skip
"""Model type -> values that no default holds."""


def config_of(model_type: str) -> dict[str, Any]:
    """config.json of that type, as small as a release's may be."""
    config: dict[str, Any] = {"model_type": model_type, **PUBLISHED.get(model_type, {})}
    default = _default(model_type)
    if default is None:
        return config
    if getattr(default, "is_decoder", None) is False:
        config["is_decoder"] = True  # an encoder's class answers as a causal model only where told so
    heads = stated(default, "num_attention_heads")
    grouped = isinstance(heads, int) and hasattr(default, "num_key_value_heads")
    if grouped and default.num_key_value_heads is None:
        config["num_key_value_heads"] = heads
    layers = [stated(default, name) for name in ("encoder_layers", "decoder_layers")]
    if all(isinstance(count, int) for count in layers) and layers[0] != layers[1]:
        config["encoder_layers"] = layers[1]  # `num_hidden_layers`, by which the cache is made, is the former
    text = text_config(default)
    for name, part in vars(default).items():
        if part is text and name not in config:
            parts = default.sub_configs if name != "text_config" else {name: None}
            config |= {key: {"model_type": getattr(default, key).model_type} for key in parts}
    return config


def _default(model_type: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[model_type]()
    except Exception:  # defaults of a third party that do not hold together; the capture will say so
        return None
