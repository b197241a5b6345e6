"""Weights in bytes under their usual names: int8, packed int4, fp4, bitsandbytes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import Packing
from .packed_words import mlx_format
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Need, any_shape, ceil_div, floating_scale, whole_shape
from .stored_forms import (
    Neighbours,
    WeightFormat,
    activation_needs,
    fp4_bytes,
    scale_names,
    second_scales,
    whole_quotient,
)

# bitsandbytes' usual number of weights that share one absmax; 4-bit blocks have from 32 to 4096.
BNB_BLOCK = 64
_BNB_NESTED = 256  # scales that share a second-level one
_BNB_KINDS = ("nf4", "fp4")


def plain_format(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat | None:
    """A weight under its usual name: int8, fp4 in bytes, bitsandbytes, MLX, ModelSlim."""
    text, width = group.pattern.text, BITS[group.dtype]
    module, _, name = text.rpartition(".")
    if width == 32:
        scales = near.first(group, f"{module}.scales")
        return (
            mlx_format(group, near, declared, module, scales)
            if scales is not None and name == "weight"
            else None
        )
    if width != 8:
        return None
    if near.first(group, f"{text}.absmax"):
        return _bnb(group, near, declared)
    scale = near.first(group, *scale_names(text))
    if scale is None and name != "weight" and not name.endswith("_proj"):
        return None
    if len(group.shape) < 2 or (group.dtype == "uint8" and scale is None and declared is None):
        return None
    columns = group.shape[-1]
    fp4 = fp4_bytes(group, scale, 2 * columns, near.agreed(group, declared))
    if fp4 is not None:
        second = second_scales(group) if fp4.scheme == "nvfp4" else ()
        return replace(fp4, needs=(*fp4.needs, *second, *activation_needs(group, declared)))
    return _int8(group, scale, declared, near)


def _int8(
    group: Group, scale: Group | None, declared: QuantizationPart | None, near: Neighbours
) -> WeightFormat:
    """int8 with scales of any grain; int4 packed by rows (modelopt, ModelSlim) or columns."""
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
        size = whole_quotient(logical[-1], scaled[-1]) if len(scaled) > 1 and scaled[-1] > 1 else 0
        packing = Packing(8, 4, f"two 4-bit weights a byte along the {where}", where)
        return WeightFormat(scheme, 4, size, packing, (Need(names, "scale", fits),))
    if stated == 2 and declared is not None:
        packing = Packing(8, 2, "four 2-bit weights a byte, as declared", "rows")
        fits = floating_scale((*group.shape[:-2], 4 * rows, columns), None)
        return WeightFormat(declared.scheme, 2, 0, packing, (Need(names, "scale", fits),))
    outlier = near.first(group, f"{module}.SCB")
    scheme = "bnb" if outlier is not None and scale is outlier else "modelslim" if slim else "int8"
    size = whole_quotient(columns, scaled[-1]) if len(scaled) > 1 and scaled[-1] > 1 else 0
    need = Need(names, "scale", near.scaled(group, None, transposed=True))
    return WeightFormat(scheme, 8, size, None, (need, *activation_needs(group, declared)))


def _row_count(scale: tuple[int, ...], weight: tuple[int, ...]) -> int:
    """Rows that the scales of a weight stand for; 0 where they stand for no rows."""
    lead = len(weight) - 2
    return scale[lead] if len(scale) > lead else 0


def _bnb(group: Group, near: Neighbours, declared: QuantizationPart | None) -> WeightFormat:
    """Four bits in blocks: block lengths, maps and second-level scales by `bitsandbytes/functional.py`."""
    text = group.pattern.text
    absmax = near.first(group, f"{text}.absmax")
    logical = 2 * prod(group.shape)
    blocks = absmax.shape[0] if absmax is not None and absmax.shape else 0
    size = next((size for size in (BNB_BLOCK, 32, 128, 256, 512, 1024, 2048, 4096)
                 if blocks == -(-logical // size)), 0)  # fmt: skip
    agreed = near.agreed(group, declared)
    size = (agreed[1] if agreed else size) or BNB_BLOCK
    number = ceil_div(logical, size)
    states = tuple(f"{text}.quant_state.bitsandbytes__{word}" for word in _BNB_KINDS)
    needs = [
        Need((f"{text}.absmax",), "scale", whole_shape((number,))),
        Need(states, "quantisation state", any_shape, wanted="error"),
        Need((f"{text}.quant_map",), "map of values", whole_shape((16,))),
    ]
    if absmax is not None and absmax.dtype == "uint8":  # double quantisation: absmax itself is quantised
        second = whole_shape((ceil_div(number, _BNB_NESTED),))
        needs.append(Need((f"{text}.nested_absmax",), "second-level scale", second, wanted="error"))
        needs.append(Need((f"{text}.nested_quant_map",), "map of scales", whole_shape((256,))))
    packing = Packing(8, 4, "4-bit bitsandbytes: two weights a byte beside `absmax`", "")
    kind = next(
        (kind for kind, state in zip(_BNB_KINDS, states, strict=True) if near.first(group, state)), ""
    )
    doubt = ""
    if declared is not None and declared.scheme == "bnb":
        if declared.bits != 4:
            doubt = f"{declared.bits} bits are declared, the tensors hold {kind or 'blocks'} of 4 bits"
        elif kind and declared.dtype and declared.dtype != kind:
            doubt = f"{declared.dtype} is declared, the tensors hold {kind}"
    return WeightFormat("bnb", 4, size, packing, tuple(needs), doubt)
