"""The quantisation in one normal form, whatever its dialect, and what the tensors say against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .config_facts import nested_mappings
from .packed import MX_GROUP, NVFP4_GROUP
from .patterns import Group
from .record import Quantization
from .roles import Place

_SECTIONS = ("quantization_config", "compression_config", "quantization")
_EXCLUDED = (
    "ignore",
    "modules_to_not_convert",
    "exclude_modules",
    "ignored_layers",
    "llm_int8_skip_modules",
    "exclude",
)
# GGUF block types -> (bits, block length), llama.cpp `ggml-common.h`.
_GGUF = {"q4_0": (4, 32), "q4_1": (4, 32), "q5_0": (5, 32), "q5_1": (5, 32), "q8_0": (8, 32),
         "q2_k": (2, 256), "q3_k": (3, 256), "q4_k": (4, 256), "q5_k": (5, 256), "q6_k": (6, 256),
         "mxfp4": (4, 32), "iq4_nl": (4, 32), "iq4_xs": (4, 256)}  # fmt: skip
_MODELOPT = {"FP8": ("fp8_tensor", 8, 0), "NVFP4": ("nvfp4", 4, NVFP4_GROUP),
             "NVFP4_AWQ": ("nvfp4", 4, NVFP4_GROUP),
             "W4A16_AWQ": ("awq", 4, 128), "INT8_SQ": ("int8", 8, 0), "FP8_PB_WO": ("fp8_block", 8, 128),
             "MIXED_PRECISION": ("mixed", 0, 0), "W4A8_AWQ": ("awq", 4, 128)}  # fmt: skip


@dataclass(frozen=True)
class DeclaredQuantization:
    """What the config declares.

    Attributes:
        normal: in the normal form; None where the config declares nothing.
        pointer: where in config.json.
        dialect: the method's own word.
        known: whether this dialect is understood.
    """

    normal: Quantization | None
    pointer: str = ""
    dialect: str = ""
    known: bool = True


def declared_quantization(config: Mapping[str, Any]) -> DeclaredQuantization:
    """The first quantisation section at any depth of the config, outermost first."""
    for pointer, part in nested_mappings(config):
        for key in _SECTIONS:
            section = part.get(key)
            if isinstance(section, Mapping) and section:
                return _normalise(section, f"{pointer}/{key}")
    return DeclaredQuantization(None)


def _normalise(section: Mapping[str, Any], pointer: str) -> DeclaredQuantization:
    method = section.get("quant_method")
    dialect = method if isinstance(method, str) else ""
    excluded = tuple(
        item for key in _EXCLUDED for item in _sequence(section.get(key)) if isinstance(item, str)
    )
    found = _scheme(section, dialect.lower())
    scheme, bits, group = found or ("mixed", 0, 0)
    normal = Quantization(scheme=scheme, bits=bits, group=group, excluded=excluded)
    return DeclaredQuantization(normal, pointer, dialect or pointer.rpartition("/")[2], found is not None)


def _scheme(section: Mapping[str, Any], method: str) -> tuple[str, int, int | list[int]] | None:
    bits, group = _count(section.get("bits")), _count(section.get("group_size"))
    if method in ("fp8", "fbgemm_fp8", "finegrained_fp8"):
        block = [_count(size) for size in _sequence(section.get("weight_block_size"))]
        if len(block) == 2:
            return "fp8_block", 8, block
        return ("fp8_channel" if method == "fbgemm_fp8" else "fp8_tensor"), 8, 0
    if method == "mxfp4":
        return "mxfp4", 4, MX_GROUP
    if method in ("gptq", "awq"):
        return method, bits or _count(section.get("w_bit")) or 4, group or _count(section.get("q_group_size"))
    if method == "bitsandbytes":
        return ("bnb", 4, 64) if section.get("load_in_4bit") is True else ("bnb", 8, 0)
    if "config_groups" in section:
        return _compressed_tensors(section)
    if method == "modelopt" or "quant_algo" in section:
        algorithm = section.get("quant_algo")
        return _MODELOPT.get(algorithm.upper()) if isinstance(algorithm, str) else None
    if method in ("modelslim", "ascend"):
        return "modelslim", bits or 8, group
    if not method and bits:  # MLX names no method
        return "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed", bits, group
    return None


def _compressed_tensors(section: Mapping[str, Any]) -> tuple[str, int, int | list[int]] | None:
    groups = section.get("config_groups")
    parts = list(groups.values()) if isinstance(groups, Mapping) else []
    schemes = []
    for part in parts:
        weights = part.get("weights") if isinstance(part, Mapping) else None
        if isinstance(weights, Mapping):
            layout = part.get("format", section.get("format"))
            schemes.append(_compressed_group(weights, layout if isinstance(layout, str) else ""))
    if not schemes or None in schemes:
        return None
    return schemes[0] if all(scheme == schemes[0] for scheme in schemes) else ("mixed", 0, 0)


def _compressed_group(weights: Mapping[str, Any], layout: str) -> tuple[str, int, int | list[int]] | None:
    bits, group = _count(weights.get("num_bits")), _count(weights.get("group_size"))
    kind, strategy = weights.get("type"), weights.get("strategy")
    if kind == "float" and bits == 4:
        return ("mxfp4", 4, group or MX_GROUP) if "mxfp4" in layout else ("nvfp4", 4, group or NVFP4_GROUP)
    if kind == "float" and bits == 8:
        block = [_count(size) for size in _sequence(weights.get("block_structure"))]
        if strategy == "block" and len(block) == 2:
            return "fp8_block", 8, block
        return ("fp8_channel" if strategy == "channel" else "fp8_tensor"), 8, 0
    if kind == "int" and bits == 4:
        return "int4_group", 4, group
    return ("int8", 8, group) if kind == "int" and bits == 8 else None


def observed_quantization(placed: Sequence[tuple[Group, Place]]) -> Quantization:
    """What the tensors alone show: dtypes of the weights, and side tensors beside them."""
    sizes: dict[str, int] = {}
    for group, place in placed:
        if place.counts:
            sizes[group.dtype] = sizes.get(group.dtype, 0) + group.bytes
    names = {group.pattern.segments[-1] for group, place in placed if place.role == "aux"}
    weights = {group.pattern.segments[-1] for group, place in placed if place.counts}
    blocks = {dtype: _GGUF[dtype] for dtype in sizes if dtype in _GGUF}
    if blocks:
        (bits, length), *others = blocks.values()
        scheme = "mixed" if others else {4: "int4_group", 8: "int8"}.get(bits, "mixed")
        return Quantization(scheme=scheme, bits=0 if others else bits, group=0 if others else length)
    if names & {"deq_scale", "quant_bias"}:
        return Quantization(scheme="modelslim", bits=8)
    if any(name.endswith("_blocks") for name in weights):
        return Quantization(scheme="mxfp4", bits=4, group=MX_GROUP)
    if "qweight" in weights:
        return Quantization(scheme="gptq" if "g_idx" in names else "awq", bits=4)
    if "weight_packed" in weights:
        return Quantization(scheme="int4_group", bits=4)
    if any(dtype.startswith("fp8") for dtype in sizes):
        return _observed_fp8(placed)
    if "absmax" in names or "scb" in {name.lower() for name in names}:
        return Quantization(scheme="bnb", bits=4 if "absmax" in names else 8)
    if names and "int8" in sizes:
        return Quantization(scheme="int8", bits=8)
    return Quantization()


def _observed_fp8(placed: Sequence[tuple[Group, Place]]) -> Quantization:
    """Block, channel or tensor scales, by the shape of the first scale beside an fp8 weight."""
    weights = {
        (group.pattern.text, group.layer): group.shape
        for group, place in placed
        if place.counts and group.dtype.startswith("fp8") and len(group.shape) >= 2
    }
    for group, place in placed:
        for suffix in ("_scale_inv", "_scale"):
            text = group.pattern.text
            shape = weights.get((text.removesuffix(suffix), group.layer)) if text.endswith(suffix) else None
            if place.role != "aux" or shape is None:
                continue
            if len(group.shape) < 2 or group.shape[-1] == 1:
                channels = group.shape[:1] == shape[:1] and shape[0] > 1
                return Quantization(scheme="fp8_channel" if channels else "fp8_tensor", bits=8)
            block = [-(-size // scales) for size, scales in zip(shape[-2:], group.shape[-2:], strict=True)]
            return Quantization(scheme="fp8_block", bits=8, group=[_power_of_two(size) for size in block])
    return Quantization(scheme="fp8_tensor", bits=8)


def _power_of_two(size: int) -> int:
    """Block lengths are powers of two; a last block cut short makes the quotient smaller than the block."""
    return 1 << (size - 1).bit_length()


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0
