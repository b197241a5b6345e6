"""Integers of few bits in 32-bit words: compressed-tensors, GPTQ, AWQ, MLX."""

from __future__ import annotations

from dataclasses import replace

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Fits, Need, any_shape, ceil_div, grouped_scale, same_shape
from .stored_forms import Neighbours, WeightFormat, activation_needs, fp4_bytes, second_scales, whole_quotient

_USUAL_BITS = frozenset({2, 3, 4, 5, 6, 8})


def compressed_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, base: str
) -> WeightFormat:
    """compressed-tensors: `weight_packed` in 32-bit words (integers) or bytes (fp4)."""
    scale = near.first(group, f"{base}_scale")
    columns = group.shape[-1] if group.shape else 0
    if BITS[group.dtype] == 8:
        fp4 = fp4_bytes(group, scale, 2 * columns, "weight_packed")
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
    groups = scale.shape[-1] if scale is not None and scale.shape else 0
    zero = near.first(group, f"{base}_zero_point")
    seen = 0
    if zero is not None and zero.dtype == group.dtype and len(zero.shape) >= 2:
        seen = whole_quotient(zero.shape[-2] * width, shape[-2])
    bits, doubt = weight_bits(shape[-1] * width, groups, declared, seen)
    size = whole_quotient(shape[-1] * width, groups * bits) if groups > 1 else 0
    reason = f"{width}-bit words of `weight_packed`, {bits} bits each"
    need = Need((f"{base}_scale",), "scale", grouped_scale(group.shape, size, width / bits, rows=True))
    needs = [need]
    if width == 32:  # without it a loader does not know where the last word ends
        needs.append(Need((f"{base}_shape",), "shape", any_shape, wanted="warning"))
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    return WeightFormat(
        scheme, bits, size, Packing(width, bits, reason), tuple(needs), doubt, zero is not None
    )


def weight_bits(row_bits: int, groups: int, declared: QuantizationPart | None, seen: int) -> tuple[int, str]:
    """Bits of a weight from what shapes prove, else from the declaration, else four; and what is in doubt.

    Args:
        row_bits: bits of one row of words.
        groups: scales of one row.
        declared: of the module.
        seen: bits that another shape proves; 0 where none does.
    """
    stated = declared.bits if declared and 0 < declared.bits <= 8 else 0
    size = declared.group if declared and isinstance(declared.group, int) else 0
    if not 0 < seen <= 8:
        seen = _bits_by_group(row_bits, groups, stated, size)
    if seen:
        doubt = f"{stated} bits are declared, the shapes show {seen}" if stated and stated != seen else ""
        return seen, doubt
    if stated:
        odd = groups > 1 and size and row_bits and ceil_div(row_bits, size * stated) != groups
        shown = row_bits // (groups * stated) if odd else 0
        return (
            stated,
            f"groups of {size} are declared, {stated} bits each, the shapes show {shown}" if odd else "",
        )
    # Four bits is what every published packed release but a few has; those few declare it.
    return 4, "4 bits assumed: neither shapes nor config say"


def _bits_by_group(row_bits: int, groups: int, stated: int, size: int) -> int:
    """Bits that a declared group and the number of scales imply; 0 where the declared bits explain them.

    Bits and group only come as a product: the declared bits stand unless they make a group that nobody has.
    """
    if groups <= 1 or not size:
        return 0
    bits = whole_quotient(row_bits, groups * size)
    by_bits = whole_quotient(row_bits, groups * stated) if stated else 0
    usual = by_bits >= 16 and by_bits & (by_bits - 1) == 0
    return bits if bits in _USUAL_BITS and (bits == stated or not usual) else 0


def words_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat:
    """`qweight` of GPTQ (packed along the input) and AWQ (packed along the output), told by the scales."""
    width = BITS[group.dtype]
    scales, zeros = near.first(group, f"{module}.scales"), near.first(group, f"{module}.qzeros")
    order = near.first(group, f"{module}.g_idx")
    rows, columns = (group.shape[-2], group.shape[-1]) if len(group.shape) >= 2 else (1, 0)
    outputs = scales.shape[-1] if scales is not None and scales.shape else 0
    groups = scales.shape[-2] if scales is not None and len(scales.shape) >= 2 else 0
    if width == 16:  # AWQ's `gemv_fast`: four weights of a column in an int16
        packing = Packing(16, 4, "16-bit words of `qweight` (AWQ gemv_fast), 4 bits each", "rows")
        need = Need((f"{module}.scales",), "scale", any_shape)
        return WeightFormat("awq", 4, 0, packing, (need,), zero_points=zeros is not None)
    along_output = bool(outputs) and outputs != columns
    seen = 0
    if along_output:
        seen = whole_quotient(columns * width, outputs)
    elif order is not None and order.shape:
        seen = whole_quotient(rows * width, order.shape[-1])
    if not 0 < seen <= 8 and zeros is not None and zeros.shape and zeros.dtype == group.dtype:
        seen = whole_quotient(zeros.shape[-1] * width, outputs)
    row_bits = rows * width if not along_output else 0
    bits, doubt = weight_bits(row_bits, groups, declared, seen)
    inputs = rows if along_output else whole_quotient(rows * width, bits)
    scheme = "awq" if along_output else "gptq"
    if declared is not None and declared.scheme in ("gptq", "awq") and not scales:
        scheme = declared.scheme
    size = whole_quotient(inputs, groups) if groups > 1 else 0
    kind = "AWQ" if scheme == "awq" else "GPTQ"
    along = "outputs" if along_output else "inputs"
    reason = f"{width}-bit words of `qweight` ({kind}), {bits} bits each"
    packing = Packing(width, bits, reason, along)
    lead = group.shape[:-2]
    need = Need((f"{module}.scales",), "scale", _words_scale(lead, groups, outputs, inputs))
    zero = Need((f"{module}.qzeros", f"{module}.zeros"), "zero point", any_shape, wanted="warning")
    return WeightFormat(scheme, bits, size, packing, (need, zero), doubt, zeros is not None)


def _words_scale(lead: tuple[int, ...], groups: int, outputs: int, inputs: int) -> Fits:
    """Scales are `[groups, outputs]`; the groups must divide the inputs but for a last one cut short."""

    def fits(shape: tuple[int, ...]) -> str:
        if shape[:-2] != lead or len(shape) != len(lead) + 2:
            return f"{[*lead, 'groups', 'outputs']}"
        if inputs and groups > inputs:
            return f"at most {inputs} rows"
        return ""

    return fits


def mlx_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str, scales: Group
) -> WeightFormat:
    """MLX: `[o, i * bits / 32]` words, `[o, i / group]` scales and, for affine ones, biases."""
    groups = scales.shape[-1] if scales.shape else 0
    row_bits = (group.shape[-1] if group.shape else 0) * 32
    biases = near.first(group, f"{module}.biases")
    bits, doubt = weight_bits(row_bits, groups, declared, 0)
    size = whole_quotient(row_bits, groups * bits)
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    if scales.dtype == "uint8":
        scheme = "mxfp4" if bits == 4 else "fp8_block"
    packing = Packing(32, bits, f"32-bit words beside `scales` (MLX), {bits} bits each")
    needs = [Need((f"{module}.scales",), "scale", grouped_scale(group.shape, size, 32 / bits, rows=True))]
    if scales.dtype != "uint8":
        needs.append(Need((f"{module}.biases",), "zero point", same_shape(scales.shape), wanted="error"))
    return WeightFormat(scheme, bits, size, packing, tuple(needs), doubt, biases is not None)
