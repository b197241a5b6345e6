"""How a low-precision weight is stored, told from its name, its dtype and the shapes beside it.

What the tensors show comes first; what is declared decides only where shapes leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .packed_bytes import plain_format
from .packed_rare import aqlm_format, exllama_format, hqq_format, marlin_format, quanto_format
from .packed_torchao import torchao_format
from .packed_transposed import words_format
from .packed_words import compressed_format
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import (
    Fits,
    Need,
    Shape,
    block_of_scale,
    grouped_scale,
    same_shape,
)
from .stored_forms import Neighbours, WeightFormat, activation_needs, scale_names, second_scales

CONTAINERS = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64"})
# EETQ's name for the scales of int8; loaders of fp8 take the weight and leave such a tensor out.
_UNREAD_OF_FP8 = ("_scales",)
_MX_BYTES = MX_GROUP // 2


def weight_format(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat | None:
    """How a weight is stored; None for one in plain precision.

    Args:
        group: a weight.
        near: what stands beside it.
        declared: of its module, where it is declared.
    """
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    if name.endswith("_qdata") and len(group.shape) >= 2:
        return torchao_format(group, near, declared, text)
    if name == "_data" and len(group.shape) >= 2:
        return quanto_format(group, near, declared, text)
    if group.dtype.startswith("fp8"):
        return _fp8(group, near, declared) if len(group.shape) >= 2 else None
    if group.dtype in ("fp4_e2m1", "fp6_e2m3", "fp6_e3m2"):
        return _native(group, near)
    if group.dtype not in CONTAINERS:
        return None
    if name.endswith("_blocks"):
        scales = f"{module}.{name.removesuffix('_blocks')}_scales"
        return _blocks(group, near, scales)
    if name.endswith("_packed"):
        return compressed_format(group, near, declared, f"{module}.{name.removesuffix('_packed')}")
    if name == "qweight":
        return words_format(group, near, declared, module)
    if name == "B":
        return marlin_format(group, near, declared, module)
    if name in ("q_weight", "trellis"):
        return exllama_format(group, near, module)
    if name == "W_q":
        return hqq_format(group, near, declared, module)
    if name == "codes" and near.first(group, f"{module}.codebooks", f"{module}.scales"):
        return aqlm_format(group, near, module)
    return plain_format(group, near, declared)


def _fp8(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat:
    text = group.pattern.text
    block = _declared_block(declared)
    names = tuple(name for name in scale_names(text) if not name.endswith(_UNREAD_OF_FP8))
    need = Need(names, "scale", near.scaled(group, block), unread=(f"{text}_scales",))
    side = near.first(group, *need.names)
    size: int | Sequence[int]
    scheme, size = block_of_scale(group.shape, side.shape, block) if side else ("fp8_tensor", 0)
    if side is None and declared and declared.scheme.startswith("fp8"):
        scheme, size = declared.scheme, declared.group
    doubt = ""
    if declared is not None and declared.dtype.startswith("fp8") and declared.dtype != group.dtype:
        doubt = f"{declared.dtype} is declared, the tensors are {group.dtype}"
    elif side is not None and declared is not None and _other_grain(declared.scheme, scheme, group, side):
        doubt = f"{declared.scheme} is declared, the shapes show {scheme}"
    return WeightFormat(scheme, 8, size, None, (need, *activation_needs(group, declared)), doubt)


def _other_grain(declared: str, shown: str, group: Group, side: Group) -> bool:
    """Whether scales are declared a tensor, a row or a block and their shapes show another of the three."""
    single = prod(side.shape) == 1 and (group.shape[-2] == 1 or declared == "fp8_block")
    return declared.startswith("fp8") and declared != shown and not single


def _declared_block(declared: QuantizationPart | None) -> tuple[int, int] | None:
    if declared is None or declared.scheme != "fp8_block" or isinstance(declared.group, int):
        return None
    rows, columns = declared.group
    return rows, columns


def _native(group: Group, near: Neighbours) -> WeightFormat:
    """A dtype of its own for four or six bits: one element a weight."""
    bits = BITS[group.dtype]
    side = near.first(group, *scale_names(group.pattern.text))
    nv = side is not None and side.dtype.startswith("fp8")
    size = NVFP4_GROUP if nv else MX_GROUP
    need = Need(scale_names(group.pattern.text), "scale", grouped_scale(group.shape, size, 1))
    second = second_scales(group) if nv else ()
    return WeightFormat(
        "nvfp4" if nv else "mxfp4" if bits == 4 else "mixed", bits, size, None, (need, *second)
    )


def _blocks(group: Group, near: Neighbours, scales: str) -> WeightFormat:
    """gpt-oss: `[..., groups, 16]` bytes of two fp4 weights, one scale a group."""
    size = 2 * group.shape[-1] if group.shape else 0
    need = Need((scales,), "scale", _scales_of_blocks(group.shape))
    packing = Packing(8, 4, "mxfp4: two weights a byte in `_blocks`, one scale a block", "blocks")
    return WeightFormat("mxfp4", 4, size or MX_GROUP, packing, (need,))


def _scales_of_blocks(shape: Shape) -> Fits:
    """One scale for each block of 32 weights, whatever the number of blocks."""
    if shape and shape[-1] != _MX_BYTES:
        return lambda _: f"blocks of {_MX_BYTES} bytes, the {MX_GROUP} weights of a scale, not of {shape[-1]}"
    return same_shape(shape[:-1])
