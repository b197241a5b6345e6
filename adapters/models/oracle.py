"""A value oracle: answers what code on the meta device asks about values that are not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

ANSWERED_ROWS = 8
"""Rows that a data-dependent result is said to have (fewer where its input is smaller).

Enough that code which loops over them or indexes with them runs; small, so that expert by expert
implementations do not unroll over hundreds of experts.
"""


class ValueOracle(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Answers `nonzero`, `item`, boolean masks and copies to the CPU on meta tensors by itself.

    A branch on values is taken as `answer` says; run once with each answer and take the union where
    `consulted` is set afterwards (a run that never asked is the same with both).

    Args:
        answer: what every truth value is; numbers read from tensors are 1 or 0 accordingly.
    """

    def __init__(self, answer: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.answer = answer
        self.consulted = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (reply := _REPLIES.get(func)) is not None and _on_meta(args):
            return reply(self, func, args, kwargs)
        return func(*args, **kwargs)

    def creation(self) -> AbstractContextManager[Any]:
        """What is in force where code makes tensors of numbers; nothing."""
        return nullcontext()

    def scalar(self, dtype: torch.dtype) -> bool | int | float:
        """The answer as a Python number of the tensor's kind."""
        if dtype is torch.bool:
            return self.answer
        return float(self.answer) if dtype.is_floating_point else int(self.answer)


_Reply = Callable[[ValueOracle, Any, Sequence[Any], Mapping[str, Any]], Any]


def _on_meta(args: Sequence[Any]) -> bool:
    return any(isinstance(arg, torch.Tensor) and arg.is_meta for arg in args)


def _rows(numel: int) -> int:
    return min(numel, ANSWERED_ROWS)


def _indices(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


def _item(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    oracle.consulted = True
    return oracle.scalar(args[0].dtype)


def _equal(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    oracle.consulted = True
    return oracle.answer


def _nonzero(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    return _indices(_rows(args[0].numel()), args[0].dim())


def _masked_select(
    oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Tensor:
    return torch.empty((_rows(args[1].numel()),), dtype=args[0].dtype, device="meta")


def _bincount(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    minlength = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    dtype = torch.int64 if weights is None else weights.dtype
    return torch.empty((max(int(minlength), ANSWERED_ROWS),), dtype=dtype, device="meta")


def _repeats(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    size = kwargs.get("output_size")
    return _indices(args[0].numel() if size is None else int(size))


def _unique(
    oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    values = args[0]
    return (
        values.new_empty((_rows(values.numel()),)),
        _indices(*values.shape),
        _indices(_rows(values.numel())),
    )


def _to_copy(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    device = kwargs.get("device")
    if device is None or torch.device(device).type == "meta":
        plain: torch.Tensor = func(*args, **kwargs)
        return plain
    oracle.consulted = True
    dtype = kwargs.get("dtype") or args[0].dtype
    return torch.full(tuple(args[0].shape), oracle.scalar(dtype), dtype=dtype, device=device)


def _copy(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """Values that come to the host are what the oracle says."""
    target: torch.Tensor = args[0]
    if target.is_meta:
        plain: torch.Tensor = func(*args, **kwargs)
        return plain
    oracle.consulted = True
    return target.fill_(oracle.scalar(target.dtype))


def _without_masks(tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Boolean masks as the index vectors that they select."""
    plain: list[torch.Tensor | None] = []
    for index in tensors:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            plain.extend(_indices(_rows(index.numel())) for _ in range(index.dim()))
        else:
            plain.append(index)
    return plain


def _index(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(args[0], _without_masks(args[1]), *args[2:], **kwargs)


def _index_put(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1]):
        return func(*args, **kwargs)
    # The number of values must fit the mask's number of hits, which nobody knows: only the shape of
    # the result matters here, and that is the first argument's.
    return args[0] if func in (_aten.index_put_.default,) else torch.empty_like(args[0])


def _grouped_mm(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Torch's own meta kernel takes bf16 only, its CPU and CUDA kernels take the other floats too."""
    left, right = args[0], args[1]
    if left.dtype is torch.bfloat16 or left.dtype is not right.dtype or not left.dtype.is_floating_point:
        return func(*args, **kwargs)
    offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == 3 and right.dim() == 3:
        shape: tuple[int, ...] = (left.shape[0], rows, columns)
    elif left.dim() == 2 and right.dim() == 2:
        shape = (offsets.shape[0], rows, columns)
    else:
        shape = (rows, columns)
    return left.new_empty(shape, dtype=kwargs.get("out_dtype") or left.dtype)


def _split(oracle: ValueOracle, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Sizes that code read from tensors (tokens of each expert) are made to add up to the rows there are."""
    value, sizes = args[0], [int(size) for size in args[1]]
    dim = int(kwargs.get("dim", args[2] if len(args) > 2 else 0))
    left = value.shape[dim] - sum(sizes)
    if not oracle.consulted or not sizes or left == 0:
        return func(*args, **kwargs)
    if left < 0:
        sizes = [0] * len(sizes)
        left = value.shape[dim]
    return func(value, [*sizes[:-1], sizes[-1] + left], dim)


_REPLIES: dict[Any, _Reply] = {
    _aten._local_scalar_dense.default: _item,
    _aten.equal.default: _equal,
    _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _masked_select,
    _aten.bincount.default: _bincount,
    _aten.repeat_interleave.Tensor: _repeats,
    _aten._unique2.default: _unique,
    _aten.unique_consecutive.default: _unique,
    _aten._to_copy.default: _to_copy,
    _aten.copy_.default: _copy,
    _aten._grouped_mm.default: _grouped_mm,
    _aten.split_with_sizes.default: _split,
    _aten.index.Tensor: _index,
    _aten.index_put.default: _index_put,
    _aten.index_put_.default: _index_put,
}
