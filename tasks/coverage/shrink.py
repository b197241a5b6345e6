"""A captured call made small enough to replay: the same rank, dtypes, attributes and proportions."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0_worker.operators import call_dtype, decode_call, resolve

_FLOORS = (512, 256, 128, 64, 32, 16, 8, 4, 1)
"""Sizes up to which dimensions are left alone, tried from the mildest."""

_MOST_DIMENSIONS = 7
_FACTORS = tuple(2**power for power in range(1, 16))
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
"""What torch raises on the meta device where shapes and attributes do not fit each other."""


def shrink(call: OperatorCall, limit: int) -> OperatorCall | None:
    """The call with its tensors' elements within a limit; None where no smaller form of it is a valid call.

    Every dimension above some floor is divided by one factor, equal sizes stay equal, and integer arguments
    that equal a divided dimension go with it. Whether the result is still a valid call is decided by running
    it on the meta device.

    Args:
        call: as captured.
        limit: elements of all its distinct tensors together.
    """
    if elements(call.shapes) <= limit:
        return call
    # What meta refuses in the call's own dtype (grouped products of fp32) it may know in another one.
    dtype = next((name for name in ("", "bf16") if runs_on_meta(call, name)), None)
    if dtype is None:
        return None
    for sizes in _maps(call):
        smaller = _resized(call, sizes)
        if elements(smaller.shapes) <= limit and runs_on_meta(smaller, dtype):
            return smaller
    return None


def elements(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of all these tensors together."""
    return sum(math.prod(shape) for shape in shapes)


def runs_on_meta(call: OperatorCall, dtype: str = "") -> bool:
    """Whether shapes and attributes fit each other.

    Args:
        call: to try.
        dtype: in which floating tensors are tried; empty: their own.
    """
    encoded = call.model_dump(mode="json")
    own = [call_dtype(name) for name in call.dtypes]
    kept = [call_dtype(dtype) if dtype and one.is_floating_point else one for one in own]
    tensors = [
        torch.empty(shape, dtype=one, device="meta") for shape, one in zip(call.shapes, kept, strict=True)
    ]
    args, kwargs = decode_call(encoded, tensors)
    kwargs = {name: torch.device("meta") if name == "device" else value for name, value in kwargs.items()}
    try:
        with torch.no_grad():
            resolve(call.op)(*args, **kwargs)
    except _REFUSALS:
        return False
    return True


def _maps(call: OperatorCall) -> Iterator[dict[int, int]]:
    """Old size -> new size, the mildest first."""
    known = {size for shape in call.shapes for size in shape}
    parts = {size for arg in call.args if _is_split(arg, known) for size in arg}
    sizes = sorted(size for size in known | parts if size > 1)
    for factor in _FACTORS:
        for floor in _FLOORS:
            changed = {size: max(-(-size // factor), 2) for size in sizes if size > floor and size >= factor}
            if changed:
                yield changed


def _is_split(arg: Any, sizes: Container[int]) -> bool:
    """Whether the argument says into which parts a dimension is split; smaller numbers may be dimensions."""
    if not isinstance(arg, list | tuple) or not all(type(part) is int for part in arg):
        return False
    return len(arg) > 1 and min(arg) > _MOST_DIMENSIONS and sum(arg) in sizes


def _resized(call: OperatorCall, sizes: Mapping[int, int]) -> OperatorCall:
    args = [_encoded(arg, sizes) for arg in call.args]
    kwargs = {name: _encoded(value, sizes) for name, value in call.kwargs.items()}
    shapes = [[sizes.get(size, size) for size in shape] for shape in call.shapes]
    return call.model_copy(update={"args": args, "kwargs": kwargs, "shapes": shapes})


def _encoded(value: Any, sizes: Mapping[int, int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_encoded(item, sizes) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.get(value, value)
    if not (isinstance(value, dict) and "tensor" in value):
        return value
    facts = value["tensor"]
    shape = [sizes.get(size, size) for size in facts["shape"]]
    return {"tensor": {**facts, "shape": shape, "stride": _strides(shape, facts["stride"])}}


def _strides(shape: Sequence[int], old: Sequence[int]) -> list[int]:
    """Dense strides in the same order of dimensions; what was broadcast stays so."""
    strides = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (old[dim], -dim)):
        if old[dim] != 0:
            strides[dim] = step
            step *= shape[dim]
    return strides
