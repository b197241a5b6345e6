"""`qweight` of GPTQ, packed along the inputs, and of AWQ, packed along the outputs.

Layouts: AutoGPTQ `qlinear_cuda.py` and gptqmodel (`[in * bits / 32, out]`), AutoAWQ's modules
`gemm.py` (`[in, out * bits / 32]`), `gemv.py` (`[out, in * bits / 32]`) and `gemv_fast.py` (`[out / 4, in]`
in 16 bits).
"""

from __future__ import annotations

from math import prod

from day0.adapters.base.dtypes import BITS

from .packed import Packing
from .patterns import Group
from .record_quantization import QuantizationPart
from .scale_shapes import Fits, Need, Shape, ceil_div, one_of
from .stored_forms import Neighbours, WeightFormat, whole_quotient
from .word_bits import USUAL_BITS, Reading, read_groups, read_words, stated_form

_INTERLEAVED = 4  # outputs in one row of `gemv_fast`


def words_format(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat:
    """How a `qweight` is stored: its layout by what stands beside it, its bits by shapes before words."""
    if BITS[group.dtype] == 16:
        return _gemv_fast(group, near, declared, module)
    scales, zeros = near.first(group, f"{module}.scales"), near.first(group, f"{module}.qzeros")
    order = near.first(group, f"{module}.g_idx")
    layout = _layout(group, scales, zeros, order, declared)
    if layout == "gptq":
        return _gptq(group, near, declared, module)
    if layout == "awq":
        return _awq(group, near, declared, module)
    return _gemv(group, near, declared, module)


def _layout(
    group: Group, scales: Group | None, zeros: Group | None, order: Group | None,
    declared: QuantizationPart | None,
) -> str:  # fmt: skip
    """The layout that most of what stands beside the words speaks for: one wrong shape decides nothing."""
    width, (rows, columns) = BITS[group.dtype], _matrix(group.shape)
    said = {"gptq": 0, "awq": 0, "gemv": 0}
    if declared is not None:
        said["gptq"] += declared.scheme == "gptq"
        said["awq"] += declared.scheme == "awq"
        said["gemv"] += declared.scheme == "awq"
    said["gptq"] += order is not None
    if scales is not None and scales.shape:
        last = scales.shape[-1]
        said["gptq"] += last == columns
        said["awq"] += last > columns and whole_quotient(columns * width, last) in USUAL_BITS
        said["gemv"] += len(scales.shape) > 1 and scales.shape[-2] == rows
    if zeros is not None and zeros.shape:
        last = zeros.shape[-1]
        said["gptq"] += last < columns and whole_quotient(last * width, columns) in USUAL_BITS
        said["awq"] += last == columns
        said["gemv"] += len(zeros.shape) > 1 and zeros.shape[-2] == rows
    return max(said, key=lambda name: said[name])


def _gptq(group: Group, near: Neighbours, declared: QuantizationPart | None, module: str) -> WeightFormat:
    width, lead, (rows, outputs) = BITS[group.dtype], group.shape[:-2], _matrix(group.shape)
    scales, zeros = near.first(group, f"{module}.scales"), near.first(group, f"{module}.qzeros")
    order = near.first(group, f"{module}.g_idx")
    seen = []
    if order is not None and order.shape:
        seen.append(whole_quotient(rows * width, order.shape[-1]))
    if zeros is not None and zeros.shape and zeros.dtype == group.dtype:
        seen.append(whole_quotient(zeros.shape[-1] * width, outputs))
    agreed, expected = near.agreed(group, declared), near.width(group)
    groups = _rows(scales)
    reading = read_words(rows * width, groups, declared, agreed, seen=seen, width=expected)
    words = {outputs * reading.bits // width, ceil_div(outputs * reading.bits, width)}
    packed = [(*lead, reading.groups, word) for word in words]
    needs = (
        Need((f"{module}.scales",), "scale", _of_groups(lead, reading, outputs)),
        Need((f"{module}.qzeros",), "zero point", one_of(*packed), wanted="warning")
        if zeros is not None or near.first(group, f"{module}.zeros") is None
        else Need((f"{module}.zeros",), "zero point", one_of(*packed, (*lead, reading.groups, outputs))),
        Need((f"{module}.g_idx",), "order of columns", one_of((*lead, reading.inputs), (reading.inputs,))),
    )
    reason = f"{width}-bit words of `qweight` (GPTQ), {reading.bits} bits each"
    packing = Packing(width, reading.bits, reason, "inputs")
    return WeightFormat("gptq", reading.bits, reading.group, packing, needs, reading.doubt, zeros is not None)


def _awq(group: Group, near: Neighbours, declared: QuantizationPart | None, module: str) -> WeightFormat:
    width, lead, (inputs, columns) = BITS[group.dtype], group.shape[:-2], _matrix(group.shape)
    scales, zeros = near.first(group, f"{module}.scales"), near.first(group, f"{module}.qzeros")
    stated, _ = stated_form(declared)
    agreed = near.agreed(group, declared)
    last = scales.shape[-1] if scales is not None and scales.shape else 0
    shown = whole_quotient(columns * width, last)
    bits = agreed[0] if agreed else shown if shown in USUAL_BITS else 0
    found = bits or stated or 4
    reading = read_groups(inputs, _rows(scales), declared, agreed, found, known=bool(bits or stated))
    needs = (
        Need((f"{module}.scales",), "scale", _of_groups(lead, reading, columns * width // found)),
        Need((f"{module}.qzeros",), "zero point", one_of((*lead, reading.groups, columns)), wanted="warning"),
    )
    reason = f"{width}-bit words of `qweight` (AWQ), {found} bits each"
    packing = Packing(width, found, reason, "outputs")
    return WeightFormat("awq", found, reading.group, packing, needs, reading.doubt, zeros is not None)


def _gemv(group: Group, near: Neighbours, declared: QuantizationPart | None, module: str) -> WeightFormat:
    """AWQ for single rows: scales and zero points stand with the outputs and are padded to whole words."""
    width, lead, (outputs, columns) = BITS[group.dtype], group.shape[:-2], _matrix(group.shape)
    stated, size = stated_form(declared)
    bits = stated or 4
    inputs = columns * width // bits
    least = ceil_div(inputs, size) if size else 1
    doubt = "" if stated else "4 bits assumed: neither shapes nor config say"
    zeros = near.first(group, f"{module}.qzeros")
    needs = (
        Need((f"{module}.scales",), "scale", _padded(lead, outputs, least)),
        Need((f"{module}.qzeros",), "zero point", _padded(lead, outputs, ceil_div(least * bits, width)),
             wanted="warning"),
    )  # fmt: skip
    packing = Packing(width, bits, f"{width}-bit words of `qweight` (AWQ gemv), {bits} bits each", "columns")
    return WeightFormat("awq", bits, size, packing, needs, doubt, zeros is not None)


def _gemv_fast(
    group: Group, near: Neighbours, declared: QuantizationPart | None, module: str
) -> WeightFormat:
    """Four weights of a column in 16 bits; scales and zero points are padded along the groups."""
    lead, (rows, inputs) = group.shape[:-2], _matrix(group.shape)
    _, size = stated_form(declared)
    outputs = _INTERLEAVED * rows
    padded = _padded_rows(lead, ceil_div(inputs, size) if size else 1, outputs)
    packing = Packing(16, 4, "16-bit words of `qweight` (AWQ gemv_fast), 4 bits each", "rows")
    needs = (
        Need((f"{module}.scales",), "scale", padded),
        Need((f"{module}.qzeros",), "zero point", padded, wanted="warning"),
    )
    zeros = near.first(group, f"{module}.qzeros")
    return WeightFormat("awq", 4, 0, packing, needs, zero_points=zeros is not None)


def _matrix(shape: Shape) -> tuple[int, int]:
    return (shape[-2], shape[-1]) if len(shape) >= 2 else (1, prod(shape))


def _rows(scales: Group | None) -> int:
    """Groups that scales of `[groups, outputs]` stand for."""
    if scales is None or not scales.shape:
        return 0
    return scales.shape[-2] if len(scales.shape) >= 2 else 1


def _of_groups(lead: Shape, reading: Reading, outputs: int) -> Fits:
    """Scales are `[groups, outputs]`; one group may leave its dimension out."""
    whole = (*lead, reading.groups, outputs)
    return one_of(whole, (*lead, outputs)) if reading.groups == 1 else one_of(whole)


def _padded(lead: Shape, outputs: int, least: int) -> Fits:
    def fits(shape: Shape) -> str:
        fine = shape[:-1] == (*lead, outputs) and shape[-1] >= least
        return "" if fine else f"{[*lead, outputs]} and at least {least}"

    return fits


def _padded_rows(lead: Shape, least: int, outputs: int) -> Fits:
    def fits(shape: Shape) -> str:
        fine = len(shape) == len(lead) + 2 and shape[:-2] == lead and shape[-1] == outputs
        return "" if fine and shape[-2] >= least else f"at least {[*lead, least, outputs]}"

    return fits
