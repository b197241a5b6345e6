"""torchao's tensors, flattened into safetensors: `_weight_qdata` beside `_weight_scale` and the like.

Layouts: torchao `quantization/quantize_/workflows` (`Float8Tensor`, `Int4Tensor`,
`Int4TilePackedTo4dTensor`, `IntxUnpackedToInt8Tensor`, `Int8Tensor`) and `prototype/mx_formats`; names:
`prototype/safetensors`, which put a parameter's name, with or without an underscore, before each part's.
"""

from __future__ import annotations

from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import MX_GROUP, NVFP4_GROUP, Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Fits, Need, Shape, block_of_scale, ceil_div, whole_shape
from .stored_forms import Neighbours, WeightFormat
from .word_bits import read_groups, stated_form

_TILED = 4  # dimensions of the layout for tensor cores, two values (scale, zero point) a group in one tensor


def torchao_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, text: str
) -> WeightFormat:
    """The bits by what stands beside the weight; where that leaves it open, as declared."""
    base = text.removesuffix("_qdata")
    names = (f"{base}_scale", f"{base}_scale_and_zero")
    scale = near.first(group, *names)
    if BITS[group.dtype] == 8 and scale is not None and scale.dtype.startswith("fp8"):
        return _microscaled(group, near, base, "nvfp4", NVFP4_GROUP, 2)
    if scale is not None and scale.dtype in ("e8m0", "uint8"):
        whole = group.dtype.startswith("fp8")
        return _microscaled(group, near, base, "fp8_block" if whole else "mxfp4", MX_GROUP, 1 if whole else 2)
    if group.dtype.startswith("fp8"):
        return _float8(group, near, scale, names)
    if len(group.shape) == _TILED and BITS[group.dtype] == 32:
        return _tiled(group, near, declared, base)
    return _integers(group, near, declared, base)


def _float8(group: Group, near: Neighbours, scale: Group | None, names: tuple[str, ...]) -> WeightFormat:
    scheme, size = block_of_scale(group.shape, scale.shape, None) if scale else ("fp8_tensor", 0)
    need = Need(names, "scale", near.scaled(group, None))
    return WeightFormat(scheme, 8, size, None, (need,))


def _microscaled(
    group: Group, near: Neighbours, base: str, scheme: str, size: int, ratio: int
) -> WeightFormat:
    rows, columns = prod(group.shape[:-1]), group.shape[-1] * ratio
    need = Need((f"{base}_scale",), "scale", _at_least(rows * ceil_div(columns, size)))
    packing = Packing(8, 4, f"{scheme}: two weights a byte (torchao)") if ratio == 2 else None
    return WeightFormat(scheme, 8 // ratio, [1, size] if scheme == "fp8_block" else size, packing, (need,))


def _at_least(number: int) -> Fits:
    """So many values, or more: kernels want them swizzled in whole tiles."""
    return lambda shape: "" if prod(shape) >= number else f"{number} values"


def _tiled(group: Group, near: Neighbours, declared: QuantizationPart | None, base: str) -> WeightFormat:
    """`[outputs / 8, inputs / 16 k, 32, k / 2]` words of eight weights."""
    outputs, total = group.shape[0] * 8, prod(group.shape) * 8
    both = near.first(group, f"{base}_scale_and_zero")
    inputs = total // outputs if outputs else 0
    groups = both.shape[0] if both is not None and both.shape else 0
    reading = read_groups(inputs, groups, declared, near.agreed(group, declared), 4, known=True)
    fits = whole_shape((reading.groups, outputs, 2))
    packing = Packing(32, 4, "tiles of 32-bit words, eight weights each (torchao)", "")
    needs = (Need((f"{base}_scale_and_zero",), "scale", fits),)
    return WeightFormat("int4_group", 4, reading.group, packing, needs, reading.doubt, zero_points=True)


def _integers(group: Group, near: Neighbours, declared: QuantizationPart | None, base: str) -> WeightFormat:
    """Integers a byte each, or packed along the row; scales stand with the rows or across them."""
    width, stated = BITS[group.dtype], stated_form(declared)[0]
    bits = stated or 8
    scale = near.first(group, f"{base}_scale", f"{base}_scale_and_zero")
    rows, stored = prod(group.shape[:-1]), group.shape[-1] if group.shape else 0
    groups = prod(scale.shape) // rows if scale is not None and rows else 0
    ratio = _ratio(group, near, declared, stored, groups)
    reading = read_groups(stored * ratio, groups, declared, near.agreed(group, declared), bits, known=True)
    packing = Packing(width, width // ratio, f"{ratio} weights an element (torchao)") if ratio > 1 else None
    scheme = declared.scheme if declared and declared.scheme != "none" else "int8"
    zero = near.first(group, f"{base}_zero_point")
    fits = _rows_or_across(group.shape[:-1], reading.groups)
    needs = (
        Need((f"{base}_scale", f"{base}_scale_and_zero"), "scale", fits),
        Need((f"{base}_zero_point",), "zero point", fits),
    )
    return WeightFormat(scheme, bits, reading.group, packing, needs, reading.doubt, zero is not None)


def _ratio(
    group: Group, near: Neighbours, declared: QuantizationPart | None, stored: int, groups: int
) -> int:
    """Weights in an element: one for integers kept unpacked in bytes, whatever their bits."""
    bits, size = stated_form(declared)
    packed = BITS[group.dtype] // bits if bits else 1
    if packed <= 1:
        return 1
    if near.width(group) in (stored, stored * packed):
        return near.width(group) // stored if stored else packed
    return 1 if size and groups > 1 and groups * size == stored else packed


def _rows_or_across(lead: Shape, groups: int) -> Fits:
    """So many for each row, one a row or one in all where there is one group; or the same transposed."""
    fine = [(*lead, groups), (*lead[:-1], groups, *lead[-1:])]
    if groups == 1:
        fine += [lead, (), (1,), (1, 1)]
    return lambda shape: "" if tuple(shape) in fine else str(list(fine[0]))
