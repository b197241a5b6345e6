"""The words of single dialects for what a weight, an activation or a KV cache is stored in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .declaration import count, flag, make_part, mapping, sequence, word
from .packed import MX_GROUP, NVFP4_GROUP
from .record_quantization import Activations, QuantizationPart

_FP8_STATIC = Activations(bits=8, dtype="fp8_e4m3", dynamic=False)
_FP8_DYNAMIC = Activations(bits=8, dtype="fp8_e4m3", dynamic=True)
_FP4_STATIC = Activations(bits=4, dtype="fp4_e2m1", dynamic=False, group=NVFP4_GROUP)
_INT8_STATIC = Activations(bits=8, dtype="int8", dynamic=False)
_INT8_DYNAMIC = Activations(bits=8, dtype="int8", dynamic=True)

# modelopt's `quant_algo` (NVIDIA Model-Optimizer, `torch/export/model_config.py` and TensorRT-LLM's
# `QuantAlgo`) -> scheme, bits, group, activations.
_MODELOPT: dict[str, tuple[str, int, Any, Activations | None]] = {
    "FP8": ("fp8_tensor", 8, 0, _FP8_STATIC),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_channel", 8, 0, _FP8_DYNAMIC),
    "FP8_PB_WO": ("fp8_block", 8, (128, 128), None),
    "FP8_PB_REAL": ("fp8_block", 8, (128, 128), _FP8_DYNAMIC),
    "FP8_BLOCK_SCALES": ("fp8_block", 8, (128, 128), _FP8_DYNAMIC),
    "MXFP8": ("fp8_block", 8, (1, MX_GROUP), _FP8_DYNAMIC),
    "NVFP4": ("nvfp4", 4, NVFP4_GROUP, _FP4_STATIC),
    "NVFP4_AWQ": ("nvfp4", 4, NVFP4_GROUP, _FP4_STATIC),
    "NVFP4_SVD": ("nvfp4", 4, NVFP4_GROUP, _FP4_STATIC),
    "W4A16_NVFP4": ("nvfp4", 4, NVFP4_GROUP, None),
    "W4A8_NVFP4_FP8": ("nvfp4", 4, NVFP4_GROUP, _FP8_STATIC),
    "MXFP4": ("mxfp4", 4, MX_GROUP, None),
    "W4A16_MXFP4": ("mxfp4", 4, MX_GROUP, None),
    "W4A8_MXFP4_FP8": ("mxfp4", 4, MX_GROUP, _FP8_STATIC),
    "W4A8_MXFP4_MXFP8": ("mxfp4", 4, MX_GROUP, _FP8_DYNAMIC),
    "W4A16": ("int4_group", 4, 0, None),
    "W4A16_AWQ": ("awq", 4, 128, None),
    "W4A8_AWQ": ("awq", 4, 128, _FP8_STATIC),
    "W4A16_GPTQ": ("gptq", 4, 128, None),
    "W8A16": ("int8", 8, 0, None),
    "INT8_WO": ("int8", 8, 0, None),
    "INT8": ("int8", 8, 0, _INT8_STATIC),
    "INT8_SQ": ("int8", 8, 0, _INT8_STATIC),
    "W8A8_SQ_PER_CHANNEL": ("int8", 8, 0, _INT8_STATIC),
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": ("int8", 8, 0, _INT8_DYNAMIC),
}
_MODELOPT_PLAIN = frozenset({"", "NONE", "NO_QUANT", "UNQUANTIZED"})


def modelopt_part(algorithm: Any, group_size: Any) -> QuantizationPart | None:
    """The part that a `quant_algo` names; scheme `none` for a plain one, None for an unknown one."""
    name = "NONE" if algorithm is None else word(algorithm).upper()
    if name in _MODELOPT_PLAIN:
        return make_part("none", 0)
    known = _MODELOPT.get(name)
    if known is None:
        return None
    scheme, bits, group, activations = known
    stated = count(group_size)
    if stated and isinstance(group, int):
        group = stated if scheme not in ("fp8_tensor", "fp8_channel", "int8") else group
    elif stated and scheme == "fp8_block" and group[0] > 1:
        group = (stated, stated)
    return make_part(scheme, bits, group, activations)


# ModelSlim's words (Ascend msmodelslim): W<weight bits>A<activation bits>, dynamic or static.
_MODELSLIM = re.compile(r"W(\d{1,2})A(\d{1,2})(C8)?(_DYNAMIC|_MIX|_PER_CHANNEL|_MXFP|_FLATQUANT_DYNAMIC)?")


def modelslim_part(value: Any) -> QuantizationPart | None:
    """The part that a word of `quant_model_description.json` names; `none` for FLOAT, None if unknown."""
    name = word(value).upper()
    if name in ("FLOAT", "BF16", "FP16", "FLOAT16", "BFLOAT16"):
        return make_part("none", 0)
    found = _MODELSLIM.match(name)
    if found is None:
        return None
    weights, activations = int(found[1]), int(found[2])
    if not 0 < weights <= 16:
        return None
    low = activations < 16
    dynamic = (found[4] or "").endswith("_DYNAMIC")
    kept = Activations(bits=activations, dtype=f"int{activations}", dynamic=dynamic) if low else None
    return make_part("modelslim", weights, 0, kept)


def compressed_part(group: Mapping[str, Any], layout: str) -> QuantizationPart | None:
    """One config group of compressed-tensors."""
    weights = mapping(group.get("weights"))
    bits, size = count(weights.get("num_bits")), count(weights.get("group_size"))
    kind, strategy = weights.get("type"), weights.get("strategy")
    activations = compressed_activations(group.get("input_activations"))
    if kind == "float" and bits == 4:
        mx = "mxfp4" in layout or size == MX_GROUP or weights.get("scale_dtype") == "torch.uint8"
        scheme, usual = ("mxfp4", MX_GROUP) if mx else ("nvfp4", NVFP4_GROUP)
        return make_part(scheme, 4, size or usual, activations)
    if kind == "float" and bits == 8:
        block = [count(length) for length in sequence(weights.get("block_structure"))]
        if strategy == "block":
            return make_part("fp8_block", 8, block if len(block) == 2 else [128, 128], activations)
        if strategy == "group" and size:
            return make_part("fp8_block", 8, [1, size], activations)
        return make_part("fp8_channel" if strategy == "channel" else "fp8_tensor", 8, 0, activations)
    if kind == "int" and bits == 8:
        return make_part("int8", 8, size, activations)
    if kind == "int" and 0 < bits < 8:
        return make_part("int4_group" if bits == 4 else "mixed", bits, size, activations)
    return None


def compressed_activations(value: Any) -> Activations | None:
    """Compressed-tensors' `input_activations`; `dynamic: "local"` keeps a stored global scale."""
    section = mapping(value)
    bits = count(section.get("num_bits"))
    if not bits:
        return None
    dynamic = flag(section.get("dynamic"))
    if section.get("dynamic") == "local":
        dynamic = False
    return Activations(
        bits=bits, dtype=number_dtype(section.get("type"), bits), dynamic=dynamic,
        group=count(section.get("group_size")),
    )  # fmt: skip


def number_dtype(kind: Any, bits: int) -> str:
    """Short dtype name of `float` or `int` with so many bits; empty where there is none."""
    floats = {4: "fp4_e2m1", 6: "fp6_e2m3", 8: "fp8_e4m3", 16: "fp16"}
    return floats.get(bits, "") if kind == "float" else f"int{bits}" if kind == "int" else ""


_KV_WORDS = {
    "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e4m3fn": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
    "float8": "fp8_e4m3", "int8": "int8", "c8": "int8", "int4": "int4", "nvfp4": "fp4_e2m1",
    "fp4": "fp4_e2m1", "fp8_ds_mla": "fp8_e4m3",
}  # fmt: skip


def kv_cache(value: Any) -> tuple[str, str]:
    """Dtype and scheme as declared, of a KV cache in either form, a word or parameters; empty for none."""
    if isinstance(value, str):
        known = _KV_WORDS.get(value.lower(), "")
        plain = value.lower() in ("", "auto", "none", "bf16", "bfloat16", "fp16", "float16", "float")
        return (known or ("" if plain else "unknown"), "" if plain else value[:80])
    section = mapping(value)
    if not section:
        return "", ""
    bits = count(section.get("num_bits"))
    if bits:
        live = flag(section.get("dynamic"))
        dynamic = "" if live is None else "dynamic" if live else "static"
        scheme = " ".join(filter(None, (f"{word(section.get('type'))} {bits} bits", dynamic)))
        return number_dtype(section.get("type"), bits) or "unknown", scheme
    for key in ("kv_cache_quant_algo", "dtype", "quant_algo"):
        if isinstance(section.get(key), str):
            return kv_cache(section[key])
    for part in section.values():  # Quark: module pattern -> {output_tensors: {dtype}}
        inner = mapping(mapping(part).get("output_tensors"))
        if inner:
            return kv_cache(quark_dtype(inner.get("dtype")))
    return "", ""


def quark_dtype(value: Any) -> str:
    """Quark's dtype word, `Dtype.fp8_e4m3` or `fp8_e4m3`, in the short vocabulary."""
    name = word(value).rpartition(".")[2]
    return {"fp4": "fp4_e2m1", "uint4": "int4"}.get(name, name)


def quark_part(config: Any) -> QuantizationPart | None:
    """One of Quark's quant configs, `{weight, input_tensors, ...}`; `none` where weights stay plain."""
    section = mapping(config)
    weight = section.get("weight")
    if isinstance(weight, list | tuple):  # two-level schemes list two specs; the first is what is stored
        weight = weight[0] if weight else None
    if not weight:
        return make_part("none", 0) if isinstance(config, Mapping) else None
    spec, activations = mapping(weight), _quark_activations(section.get("input_tensors"))
    dtype, scheme, size = (
        quark_dtype(spec.get("dtype")),
        word(spec.get("qscheme")),
        count(spec.get("group_size")),
    )
    scale = word(spec.get("scale_format"))
    if dtype.startswith("fp4") or dtype == "mx":
        nv = size == NVFP4_GROUP and scale != "e8m0"
        return make_part("nvfp4" if nv else "mxfp4", 4, size or MX_GROUP, activations)
    if dtype.startswith("fp8"):
        block = [count(length) for length in sequence(spec.get("block_size"))]
        if len(block) == 2 and all(block):
            return make_part("fp8_block", 8, block, activations)
        if scheme == "per_group" and size:
            return make_part("fp8_block", 8, [1, size], activations)
        return make_part("fp8_channel" if scheme == "per_channel" else "fp8_tensor", 8, 0, activations)
    if dtype in ("int4", "uint4"):
        return make_part("int4_group", 4, size, activations)
    return make_part("int8", 8, size, activations) if dtype in ("int8", "uint8") else None


def _quark_activations(value: Any) -> Activations | None:
    items = sequence(value)
    section = mapping(items[0] if items else value)
    dtype = quark_dtype(section.get("dtype"))
    if not dtype:
        return None
    bits = next((number for number in (4, 8, 16) if str(number) in dtype), 0)
    return Activations(
        bits=bits,
        dtype=dtype,
        dynamic=flag(section.get("is_dynamic")),
        group=count(section.get("group_size")),
    )
