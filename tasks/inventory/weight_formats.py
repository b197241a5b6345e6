"""How a low-precision weight is stored, told from its name, its dtype and the shapes beside it.

What the tensors show comes first; what is declared decides only where shapes leave it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import (
    Fits,
    Need,
    any_shape,
    block_of_scale,
    floating_scale,
    grouped_scale,
    one_or_leading,
    same_shape,
    whole_shape,
)

CONTAINERS = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64"})
# bitsandbytes' usual number of weights that share one absmax; 4-bit blocks have from 32 to 4096.
BNB_BLOCK = 64
# Weights in one 32-bit word of HQQ's three-bit packing (`hqq.core.bitpack`, `pack_3bit_32`): two bits unused.
_HQQ_THREE_BIT = 10


@dataclass(frozen=True)
class WeightFormat:
    """How a group of weights is stored.

    Attributes:
        scheme: word of the design's vocabulary.
        bits: of a weight.
        group: block size; 0 for none.
        packing: None where each element is one weight.
        needs: side tensors, the scale first.
        doubt: what is assumed, or where shapes and declaration differ; empty where all agree.
        zero_points: whether zero points stand beside it.
    """

    scheme: str
    bits: int
    group: int | Sequence[int] = 0
    packing: Packing | None = None
    needs: Sequence[Need] = ()
    doubt: str = ""
    zero_points: bool = False


class Neighbours:
    """Tensors by name within their layer.

    Args:
        groups: all of the release.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        self._at: dict[tuple[str, int | None], list[Group]] = {}
        for group in groups:
            self._at.setdefault((group.pattern.text, group.layer), []).append(group)

    def near(self, text: str, group: Group) -> Sequence[Group]:
        """The groups of that pattern in the same layer; more than one where shapes or dtypes differ."""
        return self._at.get((text, group.layer), ())

    def first(self, group: Group, *texts: str) -> Group | None:
        """The first of these patterns that is there."""
        return next((found[0] for text in texts if (found := self.near(text, group))), None)


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
        return _compressed(group, near, declared, f"{module}.{name.removesuffix('_packed')}")
    if name == "qweight":
        return _words(group, near, declared, module)
    if name == "W_q":
        return _hqq(group, near, declared, module)
    if name == "codes" and near.first(group, f"{module}.codebooks"):
        return _aqlm(group, near, module)
    if name in ("weight_qdata", "_data", "weight:_data") or name.endswith("_qdata"):
        return _torchao(group, near, declared, text)
    return _plain_name(group, near, declared)


def scale_names(text: str) -> tuple[str, ...]:
    """Where the scale of a weight may stand, the most usual first."""
    module, _, name = text.rpartition(".")
    beside = [f"{text}_scale_inv", f"{text}_scale", f"{text}_scales", f"{text}.scale", f"{text}._scale"]
    if name == "weight":
        beside += [f"{module}.scale", f"{module}.scale_weight", f"{module}.qscale_weight", f"{module}.scales",
                   f"{module}.SCB", f"{module}.weight_quantizer.scale"]  # fmt: skip
    return tuple(beside)


def activation_needs(group: Group, declared: QuantizationPart | None) -> tuple[Need, ...]:
    """The stored scale of the activations, where they are declared static."""
    kept = declared.activations if declared else None
    if kept is None or kept.dynamic is not False or not kept.dtype.startswith(("fp", "int8")):
        return ()
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    stem = name.removesuffix("_packed").removesuffix("_blocks")
    names = (f"{module}.input_scale", f"{module}.input_global_scale", f"{module}.activation_scale",
             f"{module}.scale_input", f"{module}.{stem}_input_scale", f"{module}.qscale_act",
             f"{module}.input_quantizer.scale", f"{module}.act_scale", f"{module}.{stem}_activation_scale")  # fmt: skip
    return (Need(names, "activation scale", any_shape, wanted="warning"),)


def _fp8(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat:
    text = group.pattern.text
    block = _declared_block(declared)
    need = Need(scale_names(text), "scale", floating_scale(group.shape, block))
    side = near.first(group, *need.names)
    scheme, size = block_of_scale(group.shape, side.shape, block) if side else ("fp8_tensor", 0)
    if side is None and declared and declared.scheme.startswith("fp8"):
        scheme, size = declared.scheme, declared.group
    return WeightFormat(scheme, 8, size, None, (need, *activation_needs(group, declared)))


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
    second = _second_scales(group) if nv else ()
    return WeightFormat(
        "nvfp4" if nv else "mxfp4" if bits == 4 else "mixed", bits, size, None, (need, *second)
    )


def _blocks(group: Group, near: Neighbours, scales: str) -> WeightFormat:
    """gpt-oss: `[..., groups, 16]` bytes of two fp4 weights, one scale a group."""
    size = 2 * group.shape[-1] if group.shape else 0
    need = Need((scales,), "scale", same_shape(group.shape[:-1]))
    packing = Packing(8, 4, "mxfp4: two weights a byte in `_blocks`, one scale a block", "blocks")
    return WeightFormat("mxfp4", 4, size or MX_GROUP, packing, (need,))


def _second_scales(group: Group) -> tuple[Need, ...]:
    text = group.pattern.text
    module, _, name = text.rpartition(".")
    stem = name.removesuffix("_packed")
    names = (f"{module}.{stem}_scale_2", f"{module}.{stem}_global_scale", f"{text}_global_scale",
             f"{module}.global_scale", f"{module}.weight_scale_2")  # fmt: skip
    return (Need(names, "second-level scale", one_or_leading(group.shape), wanted="error"),)


def _compressed(group: Group, near: Neighbours, declared: QuantizationPart | None, base: str) -> WeightFormat:
    """compressed-tensors: `weight_packed` in 32-bit words (integers) or bytes (fp4)."""
    scale = near.first(group, f"{base}_scale")
    columns = group.shape[-1] if group.shape else 0
    if BITS[group.dtype] == 8:
        fp4 = _fp4_bytes(group, scale, 2 * columns, "weight_packed")
        if fp4 is None and scale is None:
            nv = declared is not None and declared.scheme == "nvfp4"
            size = NVFP4_GROUP if nv or declared is None else MX_GROUP
            packing = Packing(8, 4, "two 4-bit weights a byte in `weight_packed`")
            need = Need((f"{base}_scale",), "scale", grouped_scale(group.shape, size, 2))
            return WeightFormat("nvfp4" if size == NVFP4_GROUP else "mxfp4", 4, size, packing, (need,))
        if fp4 is not None:
            own = Need((f"{base}_scale",), "scale", fp4.needs[0].fits)
            second = _second_scales(group) if fp4.scheme == "nvfp4" else ()
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
        seen = _whole(zero.shape[-2] * width, shape[-2])
    bits, doubt = _bits(shape[-1] * width, groups, declared, seen)
    size = _whole(shape[-1] * width, groups * bits) if groups > 1 else 0
    reason = f"{width}-bit words of `weight_packed`, {bits} bits each"
    need = Need((f"{base}_scale",), "scale", grouped_scale(group.shape, size, width / bits, rows=True))
    needs = [need]
    if width == 32:  # without it a loader does not know where the last word ends
        needs.append(Need((f"{base}_shape",), "shape", any_shape, wanted="warning"))
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    return WeightFormat(
        scheme, bits, size, Packing(width, bits, reason), tuple(needs), doubt, zero is not None
    )


def _whole(dividend: int, divisor: int) -> int:
    """The quotient where it is whole; 0 where it is not."""
    return dividend // divisor if divisor and dividend % divisor == 0 else 0


def _bits(row_bits: int, groups: int, declared: QuantizationPart | None, seen: int) -> tuple[int, str]:
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
        seen = _whole(row_bits, groups * size) if groups > 1 and size else 0
    if 0 < seen <= 8:
        doubt = f"{stated} bits are declared, the shapes show {seen}" if stated and stated != seen else ""
        return seen, doubt
    if stated:
        return stated, ""
    # Four bits is what every published packed release but a few has; those few declare it.
    return 4, "4 bits assumed: neither shapes nor config say"


def _words(group: Group, near: Neighbours, declared: QuantizationPart | None, module: str) -> WeightFormat:
    """`qweight` of GPTQ (packed along the input) and AWQ (packed along the output), told by the scales."""
    width = BITS[group.dtype]
    scales, zeros = near.first(group, f"{module}.scales"), near.first(group, f"{module}.qzeros")
    order = near.first(group, f"{module}.g_idx")
    rows, columns = (group.shape[-2], group.shape[-1]) if len(group.shape) >= 2 else (1, 0)
    outputs = scales.shape[-1] if scales is not None and scales.shape else 0
    groups = scales.shape[-2] if scales is not None and len(scales.shape) >= 2 else 0
    along_output = bool(outputs) and outputs != columns
    seen = 0
    if along_output:
        seen = _whole(columns * width, outputs)
    elif order is not None and order.shape:
        seen = _whole(rows * width, order.shape[-1])
    if not 0 < seen <= 8 and zeros is not None and zeros.shape and zeros.dtype == group.dtype:
        seen = _whole(zeros.shape[-1] * width, outputs)
    row_bits = rows * width if not along_output else 0
    bits, doubt = _bits(row_bits, groups, declared, seen)
    inputs = rows if along_output else _whole(rows * width, bits)
    scheme = "awq" if along_output else "gptq"
    if declared is not None and declared.scheme in ("gptq", "awq") and not scales:
        scheme = declared.scheme
    size = _whole(inputs, groups) if groups > 1 else 0
    kind = "AWQ" if scheme == "awq" else "GPTQ"
    packing = Packing(
        width,
        bits,
        f"{width}-bit words of `qweight` ({kind}), {bits} bits each",
        "outputs" if along_output else "inputs",
    )
    lead = group.shape[:-2]
    need = Need((f"{module}.scales",), "scale", _words_scale(lead, groups, outputs, inputs))
    wanted = "warning"
    needs = [need, Need((f"{module}.qzeros", f"{module}.zeros"), "zero point", any_shape, wanted=wanted)]
    return WeightFormat(scheme, bits, size, packing, tuple(needs), doubt, zeros is not None)


def _words_scale(lead: tuple[int, ...], groups: int, outputs: int, inputs: int) -> Fits:
    """Scales are `[groups, outputs]`; the groups must divide the inputs but for a last one cut short."""

    def fits(shape: tuple[int, ...]) -> str:
        if shape[:-2] != lead or len(shape) != len(lead) + 2:
            return f"{[*lead, 'groups', 'outputs']}"
        if inputs and groups > inputs:
            return f"at most {inputs} rows"
        return ""

    return fits


def _plain_name(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat | None:
    """A weight under its usual name: int8, fp4 in bytes, bitsandbytes, MLX, ModelSlim."""
    text, width = group.pattern.text, BITS[group.dtype]
    module, _, name = text.rpartition(".")
    if width == 32:
        scales = near.first(group, f"{module}.scales")
        return (
            _mlx(group, near, declared, module, scales) if scales is not None and name == "weight" else None
        )
    if width != 8:
        return None
    if near.first(group, f"{text}.absmax"):
        return _bnb(group, near)
    scale = near.first(group, *scale_names(text))
    if scale is None and name != "weight" and not name.endswith("_proj"):
        return None
    if len(group.shape) < 2 or (group.dtype == "uint8" and scale is None and declared is None):
        return None
    columns = group.shape[-1]
    fp4 = _fp4_bytes(group, scale, 2 * columns, name)
    if fp4 is not None:
        second = _second_scales(group) if fp4.scheme == "nvfp4" else ()
        return replace(fp4, needs=(*fp4.needs, *second, *activation_needs(group, declared)))
    return _int8(group, scale, declared, near)


def _fp4_bytes(group: Group, scale: Group | None, columns: int, name: str) -> WeightFormat | None:
    """Two fp4 weights a byte, told by the number and the dtype of the scales in a row."""
    if scale is None or len(scale.shape) < 2 or not columns:
        return None
    groups, names = scale.shape[-1], scale_names(group.pattern.text)
    if scale.dtype in ("e8m0", "uint8") and groups == -(-columns // MX_GROUP):
        reason = f"fp4: {groups} E8M0 scales x {MX_GROUP} = 2 x {columns // 2} columns"
        size, scheme = MX_GROUP, "mxfp4"
    elif scale.dtype.startswith("fp8") and groups == -(-columns // NVFP4_GROUP):
        reason = f"nvfp4: {groups} FP8 scales x {NVFP4_GROUP} = 2 x {columns // 2} columns"
        size, scheme = NVFP4_GROUP, "nvfp4"
    else:
        return None
    need = Need(names, "scale", grouped_scale(group.shape, size, 2))
    return WeightFormat(scheme, 4, size, Packing(8, 4, reason), (need,))


def _int8(
    group: Group, scale: Group | None, declared: QuantizationPart | None, near: Neighbours
) -> WeightFormat:
    """int8 with scales of any grain; int4 packed by rows (modelopt, ModelSlim) or, where declared, columns."""
    text, (rows, columns) = group.pattern.text, group.shape[-2:]
    module = text.rpartition(".")[0]
    names = (*scale_names(text), f"{module}.deq_scale")
    stated = declared.bits if declared else 0
    slim = near.first(group, f"{module}.deq_scale", f"{module}.quant_bias", f"{text}_offset") is not None
    slim = slim or (declared is not None and declared.scheme == "modelslim")
    scaled = scale.shape if scale is not None else ()
    by_rows = len(scaled) >= 1 and _row_count(scaled, group.shape) == 2 * rows and rows > 0
    if by_rows or (stated == 4 and declared is not None and declared.scheme != "bnb"):
        where = "rows" if by_rows else "columns"
        logical = (*group.shape[:-2], 2 * rows, columns) if by_rows else (*group.shape[:-1], 2 * columns)
        fits = floating_scale(logical, None)
        scheme = "modelslim" if slim else declared.scheme if declared and declared.bits == 4 else "int4_group"
        size = _whole(logical[-1], scaled[-1]) if len(scaled) > 1 and scaled[-1] > 1 else 0
        packing = Packing(8, 4, f"two 4-bit weights a byte along the {where}", where)
        return WeightFormat(scheme, 4, size, packing, (Need(names, "scale", fits),))
    if stated == 2 and declared is not None:
        packing = Packing(8, 2, "four 2-bit weights a byte, as declared", "rows")
        return WeightFormat(declared.scheme, 2, 0, packing, (Need(names, "scale", any_shape),))
    outlier = near.first(group, f"{module}.SCB")
    scheme = "bnb" if outlier is not None and scale is outlier else "modelslim" if slim else "int8"
    size = _whole(columns, scaled[-1]) if len(scaled) > 1 and scaled[-1] > 1 else 0
    need = Need(names, "scale", floating_scale(group.shape, None, transposed=True))
    return WeightFormat(scheme, 8, size, None, (need, *activation_needs(group, declared)))


def _row_count(scale: tuple[int, ...], weight: tuple[int, ...]) -> int:
    """Rows that the scales of a weight stand for; 0 where they stand for no rows."""
    lead = len(weight) - 2
    return scale[lead] if len(scale) > lead else 0


def _bnb(group: Group, near: Neighbours) -> WeightFormat:
    text = group.pattern.text
    absmax = near.first(group, f"{text}.absmax")
    logical = 2 * prod(group.shape)
    blocks = absmax.shape[0] if absmax is not None and absmax.shape else 0
    size = next((size for size in (BNB_BLOCK, 32, 128, 256, 512, 1024, 2048, 4096)
                 if blocks == -(-logical // size)), 0)  # fmt: skip
    fits = whole_shape((-(-logical // (size or BNB_BLOCK)),))
    states = tuple(f"{text}.quant_state.bitsandbytes__{word}" for word in ("nf4", "fp4"))
    needs = [
        Need((f"{text}.absmax",), "scale", fits),
        Need(states, "quantisation state", any_shape, wanted="error"),
    ]
    if absmax is not None and absmax.dtype == "uint8":  # double quantisation: absmax itself is quantised
        needs.append(Need((f"{text}.nested_absmax",), "second-level scale", any_shape, wanted="error"))
    packing = Packing(8, 4, "4-bit bitsandbytes: two weights a byte beside `absmax`", "")
    return WeightFormat("bnb", 4, size or BNB_BLOCK, packing, tuple(needs))


def _mlx(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str, scales: Group
) -> WeightFormat:
    """MLX: `[o, i * bits / 32]` words, `[o, i / group]` scales and, for affine ones, biases."""
    groups = scales.shape[-1] if scales.shape else 0
    row_bits = (group.shape[-1] if group.shape else 0) * 32
    biases = near.first(group, f"{module}.biases")
    bits, doubt = _bits(row_bits, groups, declared, 0)
    size = _whole(row_bits, groups * bits)
    scheme = "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
    if scales.dtype == "uint8":
        scheme = "mxfp4" if bits == 4 else "fp8_block"
    packing = Packing(32, bits, f"32-bit words beside `scales` (MLX), {bits} bits each")
    needs = [Need((f"{module}.scales",), "scale", grouped_scale(group.shape, size, 32 / bits, rows=True))]
    if scales.dtype != "uint8":
        needs.append(Need((f"{module}.biases",), "zero point", same_shape(scales.shape), wanted="error"))
    return WeightFormat(scheme, bits, size, packing, tuple(needs), doubt, biases is not None)


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
