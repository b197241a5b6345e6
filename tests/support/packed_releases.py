"""Small releases of every packed format: the tensors of a weight, and a mixture of experts made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Layout = dict[str, tuple[str, Sequence[int]]]

HIDDEN, INNER, VOCABULARY, EXPERTS = 64, 128, 256, 4
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "moe_intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
Pack = Callable[[str, int, int], Layout]
PROJECTIONS = (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER))


def plain(module: str, rows: int, columns: int) -> Layout:
    return {f"{module}.weight": ("BF16", (rows, columns))}


def mixture(pack: Pack, root: str = "model.", attention: Pack = plain, head: Pack = plain) -> Layout:
    """Two layers of attention, a router and four experts, the experts packed."""
    found: Layout = {
        f"{root}embed_tokens.weight": ("BF16", (VOCABULARY, HIDDEN)),
        f"{root}norm.weight": ("BF16", (HIDDEN,)),
        **head(
            "lm_head" if root == "model." else f"{root.removesuffix('model.')}lm_head", VOCABULARY, HIDDEN
        ),
    }
    for layer in range(2):
        at = f"{root}layers.{layer}"
        for name in "qkvo":
            found |= attention(f"{at}.self_attn.{name}_proj", HIDDEN, HIDDEN)
        found[f"{at}.input_layernorm.weight"] = ("BF16", (HIDDEN,))
        found[f"{at}.mlp.gate.weight"] = ("BF16", (EXPERTS, HIDDEN))
        for expert in range(EXPERTS):
            for name, rows, columns in (
                ("gate", INNER, HIDDEN),
                ("up", INNER, HIDDEN),
                ("down", HIDDEN, INNER),
            ):
                found |= pack(f"{at}.mlp.experts.{expert}.{name}_proj", rows, columns)
    return found


ROUTED = 2 * EXPERTS * 3 * HIDDEN * INNER
LOGICAL = ROUTED + 2 * VOCABULARY * HIDDEN + HIDDEN + 2 * (4 * HIDDEN * HIDDEN + HIDDEN + EXPERTS * HIDDEN)


def words(bits: int, group: int = 32) -> Pack:
    """compressed-tensors: int32 words, bf16 scales, and the shape as data."""

    def pack(module: str, rows: int, columns: int) -> Layout:
        return {
            f"{module}.weight_packed": ("I32", (rows, columns * bits // 32)),
            f"{module}.weight_scale": ("BF16", (rows, columns // group)),
            f"{module}.weight_shape": ("I32", (2,)),
        }

    return pack


def gptq(bits: int, group: int = 32, order: bool = True) -> Pack:
    def pack(module: str, rows: int, columns: int) -> Layout:
        sides: Layout = {f"{module}.g_idx": ("I32", (columns,))} if order else {}
        return {
            f"{module}.qweight": ("I32", (columns * bits // 32, rows)),
            f"{module}.qzeros": ("I32", (columns // group, rows * bits // 32)),
            f"{module}.scales": ("F16", (columns // group, rows)),
            **sides,
        }

    return pack


def awq(module: str, rows: int, columns: int) -> Layout:
    return {
        f"{module}.qweight": ("I32", (columns, rows // 8)),
        f"{module}.qzeros": ("I32", (columns // 32, rows // 8)),
        f"{module}.scales": ("F16", (columns // 32, rows)),
    }


def mxfp4_packed(module: str, rows: int, columns: int) -> Layout:
    """Kimi-K3: two fp4 a byte, one E8M0 scale for 32 of them kept as a byte."""
    return {
        f"{module}.weight_packed": ("U8", (rows, columns // 2)),
        f"{module}.weight_scale": ("U8", (rows, columns // 32)),
    }


def fp4_int8(module: str, rows: int, columns: int) -> Layout:
    """DeepSeek-V4: two fp4 in an I8, E8M0 scales under `.scale`."""
    return {
        f"{module}.weight": ("I8", (rows, columns // 2)),
        f"{module}.scale": ("F8_E8M0", (rows, columns // 32)),
    }


def nvfp4(module: str, rows: int, columns: int) -> Layout:
    """modelopt without activations: packed bytes, FP8 scales, one FP32 scale above them."""
    return {
        f"{module}.weight": ("U8", (rows, columns // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{module}.weight_scale_2": ("F32", ()),
    }


def nvfp4_static(module: str, rows: int, columns: int) -> Layout:
    return {**nvfp4(module, rows, columns), f"{module}.input_scale": ("F32", ())}


def mlx(bits: int, group: int = 32) -> Pack:
    def pack(module: str, rows: int, columns: int) -> Layout:
        return {
            f"{module}.weight": ("U32", (rows, columns * bits // 32)),
            f"{module}.scales": ("BF16", (rows, columns // group)),
            f"{module}.biases": ("BF16", (rows, columns // group)),
        }

    return pack


def bnb(module: str, rows: int, columns: int) -> Layout:
    stored = f"{module}.weight"
    return {
        stored: ("U8", (rows * columns // 2, 1)),
        f"{stored}.absmax": ("U8", (rows * columns // 64,)),
        f"{stored}.nested_absmax": ("F32", (-(-rows * columns // 64 // 256),)),
        f"{stored}.nested_quant_map": ("F32", (256,)),
        f"{stored}.quant_map": ("F32", (16,)),
        f"{stored}.quant_state.bitsandbytes__nf4": ("U8", (90,)),
    }


def fp8(scale: str, shape: Callable[[int, int], Sequence[int]], dtype: str = "F32") -> Pack:
    def pack(module: str, rows: int, columns: int) -> Layout:
        return {
            f"{module}.weight": ("F8_E4M3", (rows, columns)),
            f"{module}.{scale}": (dtype, shape(rows, columns)),
        }

    return pack


def blocks(rows: int, columns: int, size: int = 32) -> Sequence[int]:
    return (-(-rows // size), -(-columns // size))


def deepseek_v4(expert: Pack = fp4_int8) -> Layout:
    """Names of the release: no `model.`, `ffn` and `attn`, scales under `.scale`, fp8 beside fp4."""
    block = fp8("scale", lambda rows, columns: blocks(rows, columns, 128), "F8_E8M0")
    found: Layout = {
        "embed.weight": ("BF16", (VOCABULARY, HIDDEN)),
        "norm.weight": ("BF16", (HIDDEN,)),
        "head.weight": ("BF16", (VOCABULARY, HIDDEN)),
    }
    for layer in range(2):
        for name in ("wq_a", "wq_b", "wkv", "wo_a"):
            found |= block(f"layers.{layer}.attn.{name}", 4 * HIDDEN, HIDDEN)
        found[f"layers.{layer}.ffn.gate.weight"] = ("BF16", (EXPERTS, HIDDEN))
        for which in range(EXPERTS):
            for name, rows, columns in (("w1", INNER, HIDDEN), ("w3", INNER, HIDDEN), ("w2", HIDDEN, INNER)):
                found |= expert(f"layers.{layer}.ffn.experts.{which}.{name}", rows, columns)
    return found


def modelslim(module: str, rows: int, columns: int) -> Layout:
    """Ascend W8A8, static."""
    return {
        f"{module}.weight": ("I8", (rows, columns)),
        f"{module}.deq_scale": ("F32", (rows,)),
        f"{module}.quant_bias": ("I32", (rows,)),
        f"{module}.input_scale": ("F32", (1,)),
        f"{module}.input_offset": ("F32", (1,)),
    }


def modelslim_dynamic(module: str, rows: int, columns: int) -> Layout:
    return {
        f"{module}.weight": ("I8", (rows, columns)),
        f"{module}.weight_scale": ("F32", (rows, 1)),
        f"{module}.weight_offset": ("F32", (rows, 1)),
    }


def float_head(module: str, rows: int, columns: int) -> Layout:
    return {f"{module}.weight": ("F32", (rows, columns))}
