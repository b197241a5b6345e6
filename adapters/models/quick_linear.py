"""Linear layers of the arms on a CPU, faster than torch's own choice of kernel, with the same roundings.

Measured with torch 2.13 on two cores: fp32 of few rows runs at a third to a half of oneDNN's speed, since MKL
packs the whole weight each time (AVX2), also of one row (AVX512); bf16 without units for it runs at a fifth
to a tenth of fp32's.
Products of two numbers in bf16 or fp16 are exact in fp32, and torch sums them in fp32 and rounds once; so do
the same weights, widened block by block, multiplied in fp32. Only the order of the sum differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LARGE = 2**19  # elements of a weight below which nothing is gained
_MANY = 512  # rows up to which oneDNN's fp32 is faster than MKL's
_FEW_HALF = 8  # rows from which widening the weight pays
_BLOCK, _LARGE_BLOCK = 2**21, 2**23  # elements of a block in fp32: it stays in cache where rows are few
_ROWS_OF_LARGE = 64
Around = Callable[[], AbstractContextManager[Any]]
"""Makes a context that a run is in, in its own thread."""


class Scratch:
    """Memory in which blocks of weights are widened; for one thread at a time."""

    def __init__(self) -> None:
        self._held = torch.empty(0, dtype=torch.float32)

    def take(self, rows: int, columns: int) -> Tensor:
        """Rows of so many columns in fp32, of any values."""
        if self._held.numel() < rows * columns:
            self._held = torch.empty(rows * columns, dtype=torch.float32)
        return self._held[: rows * columns].view(rows, columns)


def quick_around(dtype: torch.dtype, scratch: Scratch) -> Around:
    """What makes the linear layers of that precision quick; nothing where this CPU gains nothing.

    Args:
        dtype: in which an arm computes; layers in other precisions stay as they are.
        scratch: see above.
    """
    if not _has_kernel() or (dtype != torch.float32 and (dtype not in _HALVES or _has_units())):
        return nullcontext
    return lambda: _entered(dtype, scratch)


@contextmanager
def _entered(dtype: torch.dtype, scratch: Scratch) -> Iterator[None]:
    with _Quick(dtype, scratch):
        yield


class _Quick(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype, scratch: Scratch) -> None:
        super().__init__()
        self._dtype, self._scratch = dtype, scratch

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.linear:
            found = self._linear(*args, **(kwargs or {}))
            if found is not None:
                return found
        return func(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
        if not self._suits(input, weight, bias):
            return None
        rows = input.numel() // max(1, input.shape[-1])
        if self._dtype == torch.float32:
            return _product(input, weight, bias) if 1 <= rows <= _MANY else None
        return self._widened(input, weight, bias, rows) if rows >= _FEW_HALF else None

    def _suits(self, *tensors: Tensor | None) -> bool:
        return all(
            one is None or (type(one) in _PLAIN and one.dtype == self._dtype and one.device.type == "cpu"
                            and one.layout == torch.strided)
            for one in tensors
        ) and tensors[1] is not None and tensors[1].dim() == 2 and tensors[1].numel() >= _LARGE  # fmt: skip

    def _widened(self, input: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Tensor:
        wide = input.reshape(rows, -1).float()
        output = input.new_empty(rows, weight.shape[0])
        step = max(1, (_BLOCK if rows < _ROWS_OF_LARGE else _LARGE_BLOCK) // weight.shape[1])
        for start in range(0, weight.shape[0], step):
            part = weight[start : start + step]
            block = self._scratch.take(*part.shape).copy_(part)
            added = None if bias is None else bias[start : start + step].float()
            output[:, start : start + step] = _product(wide, block, added)
        return output.view(*input.shape[:-1], weight.shape[0])


_PLAIN = (Tensor, torch.nn.Parameter)
_HALVES = (torch.bfloat16, torch.float16)


def _product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return found


def _has_kernel() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]  # torch is untyped there


def _has_units() -> bool:
    """Whether torch multiplies bf16 with oneDNN, which it does only where the CPU has units for it."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
