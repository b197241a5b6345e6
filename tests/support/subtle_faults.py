"""Faults that show now and then: beyond a size, for one layout, the second time, in what is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Kernel = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""The sound operator, given its arguments."""

_LIMIT = 2**16
_CALLS = 3


def beyond(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """What lies beyond 65,536 elements is left as it was in the buffer."""
    made = kernel(args, kwargs)
    flat = made.reshape(-1)
    flat[_LIMIT:] = 0
    return flat.reshape(made.shape)


def strided(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """Memory is read as if every tensor were laid out row by row."""
    return kernel([_row_by_row(arg) for arg in args], kwargs)


def negative(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """A dimension counted from the end is taken for the first one."""
    return kernel([_not_negative(arg) for arg in args], kwargs)


def masked(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """Minus infinity becomes NaN, as where a softmax subtracts it from itself."""
    made = kernel(args, kwargs)
    return torch.where(torch.isinf(args[0]), torch.nan, made)


def narrow(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """Whole numbers are summed in eight bits."""
    return kernel(args, {**kwargs, "dtype": torch.int8}).to(torch.int64)


def rounded(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """A product whose partial sums are kept in the inputs' own bf16."""
    left, right = args[0], args[1]
    made = torch.zeros(left.shape[0], right.shape[1], dtype=left.dtype)
    for place in range(left.shape[1]):
        made += left[:, place : place + 1] * right[place : place + 1]
    return made


def unwritten(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """A buffer of the right shape that nobody wrote into."""
    return torch.zeros_like(kernel(args, kwargs))


def clobbers(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """The result is right, and the input is gone."""
    made = kernel(args, kwargs)
    args[0].add_(1)
    return made


def stale(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """The first result of each shape is given again for ever."""
    made = kernel(args, kwargs)
    return past.setdefault(str(made.shape), made.clone()).clone()


def unstable(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """Equal values in another order than torch's: sound, since nothing promises one."""
    turned = args[0].flip(-1)
    values, places = kernel([turned, *args[1:]], kwargs)
    return values, args[0].shape[-1] - 1 - places


def tires(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], past: dict[str, Any]) -> Any:
    """It never returns from the third call on."""
    past["calls"] = past.get("calls", 0) + 1
    if past["calls"] >= _CALLS:
        time.sleep(3600)
    return kernel(args, kwargs)


SUBTLE: Mapping[str, Callable[[Kernel, Sequence[Any], Mapping[str, Any], dict[str, Any]], Any]] = {
    fault.__name__: fault
    for fault in (
        beyond,
        strided,
        negative,
        masked,
        narrow,
        rounded,
        unwritten,
        clobbers,
        stale,
        unstable,
        tires,
    )
}
"""Word -> the operator with that fault; the last argument is what it remembers of its calls."""


def _row_by_row(arg: Any) -> Any:
    if not isinstance(arg, torch.Tensor) or arg.is_contiguous():
        return arg
    return torch.as_strided(arg, arg.shape, torch.empty(arg.shape, device="meta").stride())


def _not_negative(arg: Any) -> Any:
    if isinstance(arg, int) and not isinstance(arg, bool) and arg < 0:
        return 0
    return [_not_negative(item) for item in arg] if isinstance(arg, list) else arg
