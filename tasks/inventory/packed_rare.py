"""HQQ, AQLM, quanto, Marlin and ExLlama: weights that do not lie as rows of their matrix.

Layouts: `hqq/core/quantize.py` and `bitpack.py`, `aqlm/inference.py`, `optimum/quanto/tensor`, IST's
`marlin/__init__.py`, exllamav2's and exllamav3's `convert`.
"""

from __future__ import annotations

from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Fits, Need, any_shape, ceil_div, one_of, whole_shape
from .stored_forms import Neighbours, WeightFormat
from .word_bits import Reading, read_groups, stated_form

# Weights in one 32-bit word of HQQ's three-bit packing (`pack_3bit_32`): two bits unused.
_HQQ_THREE_BIT = 10
_MARLIN_TILE = 16
_AQLM_BLOCK = 8  # weights of a code in every published AQLM release


def hqq_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat:
    """`W_q`: weights in groups, one scale and one zero point a group; the shape is stored as data."""
    stated, _ = stated_form(declared)
    bits, width = stated or 4, BITS[group.dtype]
    scale = near.first(group, f"{module}.scale")
    scales = prod(scale.shape) if scale is not None else 0
    packing = _hqq_packing(group, bits, width, scales)
    total = packing.logical(prod(group.shape))
    reading = read_groups(total, scales, declared, near.agreed(group, declared), bits, known=bool(stated))
    doubt = reading.doubt if stated else "4 bits assumed: HQQ's tensors alone do not say"
    number = _number(total, reading, scales)
    needs = (Need((f"{module}.scale",), "scale", number), Need((f"{module}.zero",), "zero point", number,
             wanted="error"))  # fmt: skip
    return WeightFormat(_scheme(bits), bits, reading.group, packing, needs, doubt, zero_points=True)


def _hqq_packing(group: Group, bits: int, width: int, scales: int) -> Packing:
    if bits != 3 or width != 32:
        return Packing(width, bits, f"{width // bits} weights an element of `W_q` (HQQ)", "")
    reason = "ten 3-bit weights a 32-bit word (HQQ)"
    rows, columns = group.shape if len(group.shape) == 2 else (0, 0)
    if columns and ceil_div(scales, _HQQ_THREE_BIT) == rows:  # the last row of words is not full
        return Packing(scales * columns, rows * columns, reason, "")
    return Packing(_HQQ_THREE_BIT, 1, reason, "")


def _number(total: int, reading: Reading, scales: int) -> Fits:
    """As many values as there are groups in the whole tensor; any number where no group is known."""
    if reading.group:
        return whole_shape((ceil_div(total, reading.group),))
    return whole_shape((scales,)) if scales else any_shape


def aqlm_format(group: Group, near: Neighbours, module: str) -> WeightFormat:
    """`codes` `[rows, blocks, books]`: a code stands for a block of weights in each of several books."""
    books = near.first(group, f"{module}.codebooks")
    known = books is not None and len(books.shape) == 4
    shape = books.shape if books is not None and known else (1, 1, 1, _AQLM_BLOCK)
    number = group.shape[-1] if len(group.shape) == 3 else shape[0]
    block = shape[2] * shape[3]
    packing = Packing(block, max(number, 1), "codes into AQLM's codebooks", "")
    rows = group.shape[:1]
    needs = (
        Need((f"{module}.scales",), "scale", one_of((*rows, 1, 1, 1), rows, (*group.shape[:2], 1, 1))),
        Need((f"{module}.codebooks",), "codebook", _books(number, shape[2:]), wanted="error"),
    )
    doubt = "" if known else f"blocks of {_AQLM_BLOCK} weights a code assumed: no codebook stands beside it"
    return WeightFormat("mixed", 2, [shape[2], shape[3]], packing, needs, doubt)


def _books(number: int, block: tuple[int, ...]) -> Fits:
    def fits(shape: tuple[int, ...]) -> str:
        fine = len(shape) == 4 and shape[0] == number and shape[2:] == block
        return "" if fine else str([number, "entries", *block]).replace("'", "")

    return fits


def quanto_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, text: str
) -> WeightFormat:
    """`weight._data` of eight bits, or `weight._data._data` with the packed bits of fewer."""
    base = text
    while base.endswith("._data"):
        base = base.removesuffix("._data")
    names = (f"{base}._scale",)
    shift = near.first(group, f"{base}._shift")
    if text == f"{base}._data":
        scheme = "fp8_channel" if group.dtype.startswith("fp8") else "int8"
        return WeightFormat(scheme, 8, 0, None, (Need(names, "scale", near.scaled(group, None)),))
    stated, _ = stated_form(declared)
    bits = stated if stated in (2, 4) else 4
    packing = Packing(8, bits, f"{8 // bits} weights a byte (quanto)", "")
    total, scale = packing.logical(prod(group.shape)), near.first(group, *names)
    scales = prod(scale.shape) if scale is not None else 0
    reading = read_groups(total, scales, declared, near.agreed(group, declared), bits, known=True)
    number = _number(total, reading, scales)
    needs = (Need(names, "scale", number), Need((f"{base}._shift",), "zero point", number, wanted="error"))
    return WeightFormat(_scheme(bits), bits, reading.group, packing, needs, reading.doubt, shift is not None)


def marlin_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat | None:
    """`B` `[inputs / 16, outputs * 16 * bits / 32]` and `s` `[groups, outputs]`."""
    scale = near.first(group, f"{module}.s")
    if scale is None or len(group.shape) != 2:
        return None
    stated, _ = stated_form(declared)
    bits = stated or 4
    inputs = group.shape[0] * _MARLIN_TILE
    outputs = group.shape[1] * 32 // bits // _MARLIN_TILE
    groups = scale.shape[0] if len(scale.shape) == 2 else 1
    reading = read_groups(inputs, groups, declared, near.agreed(group, declared), bits, known=True)
    packing = Packing(32, bits, f"32-bit words of `B` (Marlin), {bits} bits each", "")
    need = Need((f"{module}.s",), "scale", one_of((reading.groups, outputs)))
    return WeightFormat("gptq", bits, reading.group, packing, (need,), reading.doubt)


def exllama_format(group: Group, near: Neighbours, module: str) -> WeightFormat | None:
    """ExLlama's `trellis` (EXL3) and `q_weight` (EXL2)."""
    if group.pattern.segments[-1] == "trellis":  # tiles of 16 x 16 weights in 16 x bits words of 16 bits
        words = group.shape[-1] if group.shape else 0
        packing = Packing(256, max(words, 1), "tiles of 256 weights in `trellis` (EXL3)", "")
        inputs = whole_shape((group.shape[0] * 16,)) if len(group.shape) == 3 else any_shape
        outputs = whole_shape((group.shape[1] * 16,)) if len(group.shape) == 3 else any_shape
        needs = (
            Need((f"{module}.suh",), "scale", inputs),
            Need((f"{module}.svh",), "scale of the outputs", outputs, wanted="error"),
        )
        return WeightFormat("mixed", words // 16, 0, packing, needs)
    order = near.first(group, f"{module}.q_invperm", f"{module}.q_perm")
    if order is None or len(group.shape) != 2 or not order.shape:
        return None
    # Bits differ within one tensor; the order of the inputs tells how many there are.
    packing = Packing(order.shape[-1], max(group.shape[0], 1), "rows of mixed bits in `q_weight` (EXL2)", "")
    return WeightFormat("mixed", 0, 0, packing, (Need((f"{module}.q_scale",), "scale", any_shape),))


def _scheme(bits: int) -> str:
    return "int4_group" if bits == 4 else "int8" if bits == 8 else "mixed"
