"""Small releases as headers in memory, named and shaped like published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tensors = dict[str, tuple[str, Sequence[int]]]

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}

MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "torch_dtype": "bfloat16",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
}


def smollm2_tensors() -> Tensors:
    """The 272 tensors of SmolLM2-135M-Instruct."""
    found: Tensors = {
        "model.embed_tokens.weight": ("bf16", (49152, 576)),
        "model.norm.weight": ("bf16", (576,)),
    }
    for layer in range(30):
        root = f"model.layers.{layer}"
        for name, rows, columns in (("q", 576, 576), ("k", 192, 576), ("v", 192, 576), ("o", 576, 576)):
            found[f"{root}.self_attn.{name}_proj.weight"] = ("bf16", (rows, columns))
        for name, rows, columns in (("gate", 1536, 576), ("up", 1536, 576), ("down", 576, 1536)):
            found[f"{root}.mlp.{name}_proj.weight"] = ("bf16", (rows, columns))
        for name in ("input", "post_attention"):
            found[f"{root}.{name}_layernorm.weight"] = ("bf16", (576,))
    return found


def mixtral_tensors() -> Tensors:
    """A mixture of four experts, two layers, hidden size 32."""
    found: Tensors = {
        "model.embed_tokens.weight": ("bf16", (100, 32)),
        "lm_head.weight": ("bf16", (100, 32)),
        "model.norm.weight": ("bf16", (32,)),
    }
    for layer in range(2):
        root = f"model.layers.{layer}"
        for name, rows in (("q", 32), ("k", 16), ("v", 16), ("o", 32)):
            found[f"{root}.self_attn.{name}_proj.weight"] = ("bf16", (rows, 32))
        for name in ("input", "post_attention"):
            found[f"{root}.{name}_layernorm.weight"] = ("bf16", (32,))
        found[f"{root}.block_sparse_moe.gate.weight"] = ("bf16", (4, 32))
        for expert in range(4):
            for name, shape in (("w1", (64, 32)), ("w2", (32, 64)), ("w3", (64, 32))):
                found[f"{root}.block_sparse_moe.experts.{expert}.{name}.weight"] = ("bf16", shape)
    return found


def gguf_tensors(layers: int) -> Tensors:
    """A llama under GGUF's names, in blocks of 32 four-bit weights."""
    found: Tensors = {"token_embd.weight": ("q8_0", (128, 64)), "output_norm.weight": ("fp32", (64,))}
    for layer in range(layers):
        for name, rows, columns in (("attn_q", 64, 64), ("attn_k", 32, 64), ("attn_v", 32, 64),
                                    ("attn_output", 64, 64), ("ffn_gate", 128, 64), ("ffn_up", 128, 64),
                                    ("ffn_down", 64, 128)):  # fmt: skip
            found[f"blk.{layer}.{name}.weight"] = ("q4_1", (rows, columns))
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{layer}.{name}.weight"] = ("fp32", (64,))
    return found
