"""Tensors as a lower precision would hold them: rounded to its numbers and given back in their own dtype.

A number x becomes `scale * round(x / scale)`, where `round` goes to the nearest number of the format (ties to
even) and no further than its largest, and the scale is shared by a unit of elements:

| unit | elements that share a scale |
|---|---|
| `cast` | none: x is rounded as it is |
| `tensor` | the last two dimensions; leading ones (experts) have their own |
| `channel` | everything along the axis that a product sums over: one output channel, one token |
| `group` | 32 or 128 neighbours along that axis, fewer in the last group |
| `block` | 128 x 128 of the last two dimensions, fewer at the edges |

The scale is the largest finite magnitude of the unit over the format's span:

- fp8_e4m3: 448, fp8_e5m2: 57,344, the largest numbers (OCP 8-bit Floating Point Specification 1.0, table 1);
  scales in fp32. A quotient beyond them saturates, infinity too, as `cvt.rn.satfinite` does (PTX ISA, `cvt`);
  torch's own cast gives infinity or NaN there, depending on version and format.
- int8: 127, numbers -127 to 127, scales in fp32 (SmoothQuant, `quantize_weight_per_channel_absmax`).
- int4: 7.5, numbers -8 to 7, scales in bf16: half of the 15 steps on either side of zero (GPTQ with `sym`,
  `calculate_qparams` of compressed-tensors).
- bf16, fp16: no scale; IEEE rounding to nearest even, by which fp16 overflows to infinity beyond 65,519.

Zeros stay zeros, also where a whole unit is zero: its scale counts as the smallest normal fp32 number. NaN
stays NaN in every format, although integers have none: a fault must not be hidden by rounding it. Infinity
becomes the largest number of the scaled formats. Sums are not rounded: an engine's product of the
rounded numbers accumulates in fp32 or int32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from day0_worker.dtypes import torch_dtype

CAST = ("bf16", "fp16")
"""Formats that need no scale."""
SPAN = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "int4": 7.5}
"""Format -> largest magnitude of a unit over its scale."""
BLOCK = 128
"""Rows and columns of a block (DeepSeek-V3, `weight_block_size`)."""
_LIMITS = {"int8": (-127.0, 127.0), "int4": (-8.0, 7.0)}
_BITS = {"bf16": 16, "fp16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "int4": 4}
_SCALE_BYTES = {"int4": 2}
_UNITS = ("cast", "tensor", "channel", "group", "block")


@dataclass(frozen=True)
class Scheme:
    """How a tensor is held.

    Attributes:
        dtype: bf16, fp16, fp8_e4m3, fp8_e5m2, int8 or int4.
        unit: what shares a scale, see above.
        size: elements of a group; not used for other units.

    Raises:
        ValueError: there is no such scheme.
    """

    dtype: str
    unit: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _BITS or self.unit not in _UNITS:
            raise ValueError(f"no scheme {self.dtype} with {self.unit}")
        if (self.unit == "cast") != (self.dtype in CAST) or (self.unit == "group") != (self.size > 0):
            raise ValueError(f"{self.dtype} is not held with {self.unit} of {self.size}")

    @property
    def text(self) -> str:
        """For people, e.g. `per channel`, `groups of 128`."""
        return {
            "cast": "cast",
            "tensor": "per tensor",
            "channel": "per channel",
            "group": f"groups of {self.size}",
            "block": f"blocks of {BLOCK} x {BLOCK}",
        }[self.unit]


def rounded(tensor: Tensor, scheme: Scheme, axis: int = -1) -> Tensor:
    """The tensor as the scheme would hold it.

    Args:
        tensor: fp32 or fp64 of any shape; narrower floating dtypes are worked on in fp32.
        scheme: see above.
        axis: that products sum over: the input channels of a weight, the features of a token.

    Returns:
        A new tensor of the same shape and dtype.
    """
    if scheme.unit == "cast":
        return tensor.to(torch_dtype(scheme.dtype)).to(tensor.dtype)
    if not tensor.numel():
        return tensor.clone()
    if not tensor.dim():
        return rounded(tensor.reshape(1), scheme).reshape(())
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    scale = _scales(wide, scheme, axis).to(wide.dtype)
    return _to_format(wide / scale, scheme.dtype).mul_(scale).to(tensor.dtype)


def scale_count(shape: Sequence[int], scheme: Scheme, axis: int = -1) -> int:
    """How many scales a tensor of that shape has."""
    sizes = list(shape) or [1]
    elements = math.prod(sizes)
    if scheme.unit == "cast" or not elements:
        return 0
    along = sizes[axis % len(sizes)]
    if scheme.unit == "channel":
        return elements // along
    if scheme.unit == "group":
        return elements // along * -(-along // scheme.size)
    leading = math.prod(sizes[:-2])
    if scheme.unit == "tensor":
        return leading
    return leading * math.prod(-(-size // BLOCK) for size in sizes[-2:])


def stored_bytes(shape: Sequence[int], scheme: Scheme, axis: int = -1) -> int:
    """Bytes of a tensor of that shape with its scales; two int4 numbers take one byte."""
    numbers = -(-math.prod(shape) * _BITS[scheme.dtype] // 8)
    return numbers + scale_count(shape, scheme, axis) * _SCALE_BYTES.get(scheme.dtype, 4)


def _to_format(quotient: Tensor, dtype: str) -> Tensor:
    """The nearest number of the format, in the quotient's dtype; changes its argument."""
    if dtype in _LIMITS:
        low, high = _LIMITS[dtype]
        return quotient.round_().clamp_(low, high)
    span = SPAN[dtype]
    return quotient.clamp_(-span, span).to(torch_dtype(dtype)).to(quotient.dtype)


def _scales(tensor: Tensor, scheme: Scheme, axis: int) -> Tensor:
    """Scale of each element, in a shape that broadcasts to the tensor's."""
    magnitudes = tensor.abs().nan_to_num_(nan=0.0, posinf=0.0)
    kind = torch.bfloat16 if scheme.dtype == "int4" else torch.float32
    limits = torch.finfo(kind)
    scale = _largest(magnitudes, scheme, axis) / SPAN[scheme.dtype]
    return scale.clamp_(limits.tiny, limits.max).to(kind)


def _largest(magnitudes: Tensor, scheme: Scheme, axis: int) -> Tensor:
    if scheme.unit == "channel":
        return magnitudes.amax(axis, keepdim=True)
    if scheme.unit == "tensor":
        return magnitudes.amax(tuple(range(max(0, magnitudes.dim() - 2), magnitudes.dim())), keepdim=True)
    if scheme.unit == "group":
        return _spread(magnitudes, axis % magnitudes.dim(), scheme.size)
    for place in range(max(0, magnitudes.dim() - 2), magnitudes.dim()):
        magnitudes = _spread(magnitudes, place, BLOCK)
    return magnitudes


def _spread(magnitudes: Tensor, axis: int, size: int) -> Tensor:
    """The largest magnitude of each run of `size` elements along an axis, at each of its elements."""
    parts = torch.split(magnitudes, size, axis)
    return torch.cat([part.amax(axis, keepdim=True).expand_as(part) for part in parts], axis)
