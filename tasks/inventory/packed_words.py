"""Integers of few bits in 32-bit words: compressed-tensors and MLX, packed along their rows."""

from __future__ import annotations

from dataclasses import replace

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Need, ceil_div, grouped_scale, one_of, row_groups, same_shape
from .stored_forms import Neighbours, WeightFormat, activation_needs, fp4_bytes, second_scales, whole_quotient
from .word_bits import read_words


def compressed_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, base: str
) -> WeightFormat:
    """compressed-tensors: `weight_packed` in 32-bit words (integers) or bytes (fp4)."""
    scale = near.first(group, f"{base}_scale")
    columns = group.shape[-1] if group.shape else 0
    if BITS[group.dtype] == 8:
        fp4 = fp4_bytes(group, scale, 2 * columns, near.agreed(group, declared))
        if fp4 is None and scale is None:
            nv = declared is not None and declared.scheme == "nvfp4"
            size = NVFP4_GROUP if nv or declared is None else MX_GROUP
            packing = Packing(8, 4, "two 4-bit weights a byte in `weight_packed`")
            need = Need((f"{base}_scale",), "scale", grouped_scale(group.shape, size, 2))
            return WeightFormat("nvfp4" if size == NVFP4_GROUP else "mxfp4", 4, size, packing, (need,))
        if fp4 is not None:
            own = Need((f"{base}_scale",), "scale", fp4.needs[0].fits)
            second = second_scales(group) if fp4.scheme == "nvfp4" else ()
            return replace(fp4, needs=(own, *second, *activation_needs(group, declared)))
    return _packed_words(group, near, declared, base, scale)


def _packed_words(
    group: Group, near: Neighbours, declared: QuantizationPart | None, base: str, scale: Group | None
) -> WeightFormat:
    width = BITS[group.dtype]
    shape = group.shape if len(group.shape) >= 2 else (1, *group.shape, 1)[-2:]
    lead, rows = shape[:-1], shape[-2]
    groups = _last(scale, len(shape))
    zero = near.first(group, f"{base}_zero_point")
    seen = []
    if zero is not None and zero.dtype == group.dtype and len(zero.shape) >= 2:
        seen.append(whole_quotient(zero.shape[-2] * width, rows))
    agreed, expected = near.agreed(group, declared), near.width(group)
    reading = read_words(shape[-1] * width, groups, declared, agreed, seen=seen, width=expected)
    bits, each = reading.bits, (*lead, reading.groups)
    packed = (*shape[:-2], ceil_div(rows * bits, width), reading.groups)
    zeros = (packed, each) if zero is None or zero.dtype == group.dtype else (each, packed)
    needs = [
        Need((f"{base}_scale",), "scale", row_groups(lead, reading.groups)),
        Need((f"{base}_zero_point",), "zero point", one_of(*zeros, *([lead] if reading.groups == 1 else []))),
        Need((f"{base}_g_idx",), "order of columns", one_of((reading.inputs,), (*lead[:-1], reading.inputs))),
    ]
    if width == 32:  # without it a loader does not know where the last word ends
        fits = one_of((2,), (len(shape),), (*lead[:-1], 2), (*lead[:-1], len(shape)))
        needs.append(Need((f"{base}_shape",), "shape", fits, wanted="warning"))
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    packing = Packing(width, bits, f"{width}-bit words of `weight_packed`, {bits} bits each")
    return WeightFormat(scheme, bits, reading.group, packing, tuple(needs), reading.doubt, zero is not None)


def _last(scale: Group | None, rank: int) -> int:
    """Scales of one row; 0 where there are none."""
    if scale is None or not scale.shape:
        return 0
    return scale.shape[-1] if len(scale.shape) >= rank else 1


def mlx_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str, scales: Group
) -> WeightFormat:
    """MLX: `[o, i * bits / 32]` words, `[o, i / group]` scales and, for affine ones, biases."""
    lead = group.shape[:-1]
    row_bits = (group.shape[-1] if group.shape else 0) * 32
    biases = near.first(group, f"{module}.biases")
    agreed, groups = near.agreed(group, declared), _last(scales, len(group.shape))
    reading = read_words(row_bits, groups, declared, agreed, width=near.width(group))
    bits = reading.bits
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    if scales.dtype == "uint8":
        scheme = "mxfp4" if bits == 4 else "fp8_block"
    packing = Packing(32, bits, f"32-bit words beside `scales` (MLX), {bits} bits each")
    needs = [Need((f"{module}.scales",), "scale", row_groups(lead, reading.groups))]
    if scales.dtype != "uint8":
        needs.append(
            Need((f"{module}.biases",), "zero point", same_shape((*lead, reading.groups)), wanted="error")
        )
    return WeightFormat(scheme, bits, reading.group, packing, tuple(needs), reading.doubt, biases is not None)
