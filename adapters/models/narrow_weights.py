"""Large matrices that a model computing in fp32 or fp64 keeps as they are stored, widened as they are used.

The embedding or the head of a large vocabulary would take twice or four times its stored bytes. Widening a
number is exact, so only the order in which a product is summed may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from day0_worker.scratch import cast

LARGE = 2**28
"""Elements of a matrix from which it stays as stored: 1 GiB in fp32."""
_BLOCK, _LARGE_BLOCK = 2**23, 2**24  # bytes of a block that is widened; it stays in cache where rows are few
_ROWS_OF_LARGE = 64


def large_matrices(module: torch.nn.Module) -> Mapping[str, torch.nn.Module]:
    """Parameter -> the linear layer or embedding, torch's own, whose weight it is, for each large one."""
    return {
        f"{path}.weight" if path else "weight": part
        for path, part in module.named_modules()
        if type(part) in (torch.nn.Linear, torch.nn.Embedding) and part.weight.numel() >= LARGE
    }


def widen_as_used(part: torch.nn.Module, dtype: torch.dtype) -> None:
    """Lets a layer out of `large_matrices` compute in a dtype whatever its weight is in, until `restore`."""
    computed = _looked_up if isinstance(part, torch.nn.Embedding) else _multiplied
    part.__dict__["forward"] = partial(computed, part, dtype)


def restore(part: torch.nn.Module) -> None:
    """Gives a layer its own forward back."""
    part.__dict__.pop("forward", None)


def _looked_up(part: Any, dtype: torch.dtype, ids: Tensor) -> Tensor:
    found: Tensor = embedding(ids, part.weight, part.padding_idx).to(dtype)
    return found


def _multiplied(part: Any, dtype: torch.dtype, values: Tensor) -> Tensor:
    if part.weight.dtype == dtype:
        return linear(values, part.weight, part.bias)
    output = values.new_empty(*values.shape[:-1], part.out_features)
    rows = values.numel() // max(1, values.shape[-1])
    for some in _blocks(part.weight, (_BLOCK if rows < _ROWS_OF_LARGE else _LARGE_BLOCK) // dtype.itemsize):
        bias = None if part.bias is None else part.bias[some]
        output[..., some] = linear(values, cast(part.weight[some], dtype, "widened"), bias)
    return output


def _blocks(weight: Tensor, elements: int) -> Iterator[slice]:
    step = max(1, elements // weight.shape[1])
    return (slice(start, start + step) for start in range(0, weight.shape[0], step))
