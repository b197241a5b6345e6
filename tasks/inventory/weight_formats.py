"""How a low-precision weight is stored, told from its name, its dtype and the shapes beside it.

What the tensors show comes first; what is declared decides only where shapes leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .packed_bytes import plain_format
from .packed_transposed import words_format
from .packed_words import compressed_format
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import (
    Fits,
    Need,
    Shape,
    any_shape,
    block_of_scale,
    floating_scale,
    grouped_scale,
    same_shape,
)
from .stored_forms import Neighbours, WeightFormat, activation_needs, scale_names, second_scales

CONTAINERS = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64"})
# Weights in one 32-bit word of HQQ's three-bit packing (`hqq.core.bitpack`, `pack_3bit_32`): two bits unused.
_HQQ_THREE_BIT = 10
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
    if name in ("B", "q_weight", "trellis"):
        return _reordered(group, near, declared, module)
    if name == "W_q":
        return _hqq(group, near, declared, module)
    if name == "codes" and near.first(group, f"{module}.codebooks"):
        return _aqlm(group, near, module)
    if name in ("weight_qdata", "_data", "weight:_data") or name.endswith("_qdata"):
        return _torchao(group, near, declared, text)
    return plain_format(group, near, declared)


def _fp8(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat:
    text = group.pattern.text
    block = _declared_block(declared)
    names = tuple(name for name in scale_names(text) if not name.endswith(_UNREAD_OF_FP8))
    need = Need(names, "scale", floating_scale(group.shape, block), unread=(f"{text}_scales",))
    side = near.first(group, *need.names)
    size: int | Sequence[int]
    scheme, size = block_of_scale(group.shape, side.shape, block) if side else ("fp8_tensor", 0)
    if side is None and declared and declared.scheme.startswith("fp8"):
        scheme, size = declared.scheme, declared.group
    doubt = ""
    if declared is not None and declared.dtype.startswith("fp8") and declared.dtype != group.dtype:
        doubt = f"{declared.dtype} is declared, the tensors are {group.dtype}"
    return WeightFormat(scheme, 8, size, None, (need, *activation_needs(group, declared)), doubt)


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


def _reordered(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat | None:
    """Weights laid out for one kernel: Marlin's `B`, ExLlama's `q_weight` and `trellis`."""
    bits = declared.bits if declared and declared.bits else 4
    if group.pattern.segments[-1] == "B":
        if near.first(group, f"{module}.s") is None:
            return None
        packing = Packing(32, bits, f"32-bit words of `B` (Marlin), {bits} bits each", "")
        return WeightFormat("gptq", bits, 0, packing, (Need((f"{module}.s",), "scale", any_shape),))
    if group.pattern.segments[-1] == "trellis":  # tiles of 16 x 16 weights in 16 x bits words of 16 bits
        words = group.shape[-1] if group.shape else 0
        packing = Packing(256, max(words, 1), "tiles of 256 weights in `trellis` (EXL3)", "")
        return WeightFormat("mixed", words // 16, 0, packing, (Need((f"{module}.suh",), "scale", any_shape),))
    order = near.first(group, f"{module}.q_invperm", f"{module}.q_perm")
    if order is None or len(group.shape) != 2 or not order.shape:
        return None
    # Bits differ within one tensor; the order of the inputs tells how many there are.
    packing = Packing(order.shape[-1], max(group.shape[0], 1), "rows of mixed bits in `q_weight` (EXL2)", "")
    return WeightFormat("mixed", 0, 0, packing, (Need((f"{module}.q_scale",), "scale", any_shape),))


def _hqq(group: Group, near: Neighbours, declared: QuantizationPart | None, module: str) -> WeightFormat:
    bits = declared.bits if declared and declared.bits else 4
    doubt = "" if declared and declared.bits else "4 bits assumed: HQQ's tensors alone do not say"
    width = BITS[group.dtype]
    if bits == 3 and width == 32:
        packing = Packing(_HQQ_THREE_BIT, 1, "ten 3-bit weights a 32-bit word (HQQ)", "")
    else:
        packing = Packing(width, bits, f"{width // bits} weights an element of `W_q` (HQQ)", "")
    size = declared.group if declared and isinstance(declared.group, int) else 0
    needs = (
        Need((f"{module}.scale",), "scale", any_shape),
        Need((f"{module}.zero",), "zero point", any_shape),
    )
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    return WeightFormat(scheme, bits, size, packing, needs, doubt, zero_points=True)


def _aqlm(group: Group, near: Neighbours, module: str) -> WeightFormat:
    """AQLM: a code stands for a block of weights in each of several added codebooks."""
    books = near.first(group, f"{module}.codebooks")
    shape = books.shape if books is not None and len(books.shape) == 4 else (1, 1, 1, 1)
    packing = Packing(shape[2] * shape[3], max(shape[0], 1), "codes into AQLM's codebooks", "")
    needs = (Need((f"{module}.scales",), "scale", any_shape),)
    return WeightFormat("mixed", 2, [shape[2], shape[3]], packing, needs)


def _torchao(group: Group, near: Neighbours, declared: QuantizationPart | None, text: str) -> WeightFormat:
    base = text.removesuffix("_qdata").removesuffix("._data").removesuffix(":_data")
    names = (f"{base}_scale", f"{base}._scale", f"{base}:_scale", f"{base}_scale_and_zero")
    bits = declared.bits if declared and declared.bits else 8
    width = BITS[group.dtype]
    packing = Packing(width, bits, f"{width // bits} weights an element (torchao)") if bits < width else None
    scheme = declared.scheme if declared and declared.scheme != "none" else "int8"
    zero = near.first(group, f"{base}_zero_point", f"{base}._shift") is not None
    size = declared.group if declared else 0
    return WeightFormat(scheme, bits, size, packing, (Need(names, "scale", any_shape),), "", zero)
