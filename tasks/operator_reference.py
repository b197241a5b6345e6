"""What an operator call should give: the same call on the CPU in fp64, and in its own dtypes for shapes."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from day0_worker.operators import call_dtype, decode_call, resolve

_FLOATS = frozenset(["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "e8m0"])
_UNWRITTEN = ("empty", "new_empty", "resize")
_RANDOM_NAMES = ("rand", "bernoulli", "multinomial", "normal", "uniform", "exponential", "dropout")
_WIDER = {**dict.fromkeys(_FLOATS, "fp64"), "complex64": "complex128", "complex32": "complex128"}


@dataclass(frozen=True)
class Reference:
    """What a call should give.

    Attributes:
        values: one for each output, in the precision of `kind`: tensors or Python numbers.
        like: one for each output, in the dtype and shape that the call itself gives; None where no kernel of
            this process could tell.
        kind: `fp64`, `fp32`, `loop` (a plain fp64 formula) or `own` (the call's own dtypes).
        seconds: that the call took in its own dtypes; 0 where it does not run in them.
    """

    values: Sequence[Any]
    like: Sequence[Any] | None
    kind: str
    seconds: float = 0.0


class NoReference(Exception):
    """No kernel of this process runs the call, so nothing can be compared."""


def compute_reference(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> Reference:
    """Runs the call on the CPU of this process.

    Args:
        call: an `OperatorCall` as JSON.
        tensors: by alias; they are not changed.

    Raises:
        NoReference: no precision works.
    """
    began = time.perf_counter()
    like = _attempt(call, tensors)
    seconds = 0.0 if like is None else time.perf_counter() - began
    if call["op"] in _LOOPS:
        return Reference([_LOOPS[call["op"]](call, tensors)], like, "loop", seconds)
    for kind, dtype in (("fp64", "fp64"), ("fp32", "fp32")):
        values = _attempt(widened(call, dtype), [widen(tensor, dtype) for tensor in tensors])
        if values is not None:
            return Reference(values, like, kind, seconds)
    if like is None:
        raise NoReference(f"{call['op']} runs on the CPU in no precision")
    return Reference(like, like, "own", seconds)


def why_values_differ(op: str) -> str:
    """Why two right runs of an operator may give different values; empty where they may not."""
    base = op.split(".")[1].strip("_")
    if base.startswith(_UNWRITTEN):
        return "memory is left unwritten: shape and dtype compared"
    # Attention carries the tag for its dropout, which inference leaves at zero.
    seeded = torch.Tag.nondeterministic_seeded in resolve(op).tags and "attention" not in base
    if seeded or base.startswith(_RANDOM_NAMES):
        return "random: shape, dtype and finiteness compared"
    return ""


def flat_outputs(value: Any) -> list[Any]:
    """The tensors and numbers of an operator's output, in order."""
    return list(_flat(value))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif value is not None:
        yield value


def _attempt(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> list[Any] | None:
    args, kwargs = decode_call(call, [tensor.clone() for tensor in tensors])
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            output = resolve(call["op"])(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    return flat_outputs(output)


def widen(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The tensor in a wider precision; whole numbers as they are."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(call_dtype(dtype)) if tensor.dtype.is_floating_point else tensor


def widened(value: Any, dtype: str) -> Any:
    """The encoded call with every floating dtype replaced, in tensors and in arguments."""
    if isinstance(value, (list, tuple)):
        return [widened(item, dtype) for item in value]
    if not isinstance(value, Mapping):
        return value
    changed = {key: widened(item, dtype) for key, item in value.items()}
    named = changed.get("dtype")
    if isinstance(named, str) and named in _WIDER:
        changed["dtype"] = dtype if named in _FLOATS else _WIDER[named]
    if str(changed.get("op", "")).startswith(("aten._softmax.", "aten._log_softmax.")):
        # `half_to_float` is refused for anything but half precision, and means nothing in a wider one.
        changed["args"] = [*changed["args"][:2], False]
    return changed


def _grouped_mm(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Group by group in fp64: rows of a 2-D left side with matrices of a 3-D right side, or all batched."""
    args, kwargs = decode_call(call, tensors)
    offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
    return _grouped(args[0].double(), args[1].double(), offsets)


def _grouped(left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    if offsets is None:
        return torch.matmul(left, right)
    bounds = [0, *offsets.tolist()]
    spans = list(itertools.pairwise(bounds))
    if left.dim() == 2 and right.dim() == 3:
        parts = [left[start:end] @ right[group] for group, (start, end) in enumerate(spans)]
        return torch.cat([*parts, left.new_zeros(left.shape[0] - bounds[-1], right.shape[-1])])
    if left.dim() == 2:
        return torch.stack([left[:, start:end] @ right[start:end] for start, end in spans])
    return torch.cat([left[group] @ right[:, start:end] for group, (start, end) in enumerate(spans)], dim=1)


def _scaled_mm(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Both sides in fp64 times their scales, then the product."""
    args, _ = decode_call(call, tensors)
    return torch.matmul(_unscaled(args[0], args[2]), _unscaled(args[1], args[3]))


def _scaled_grouped_mm(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Group by group in fp64, scales by row of the left side and by column of the right one."""
    args, _ = decode_call(call, tensors)
    left = args[0].double() * args[2].double()[:, None]
    right = args[1].double() * args[3].double()[:, None, :]
    return _grouped(left, right, args[4])


def _unscaled(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Values times the scales of their rows, columns or blocks; a block's side is a power of two."""
    wide = scale.double()
    for dim, size in enumerate(value.shape) if scale.dim() else ():
        count = scale.shape[dim]
        side = size if count == 1 else 2 ** math.ceil(math.log2(size / count))
        wide = wide.repeat_interleave(side, dim).narrow(dim, 0, size)
    return value.double() * wide


def _histogram(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Counts of whole numbers too, for which the CPU has no kernel."""
    args, kwargs = decode_call(call, tensors)
    return torch.histc(args[0].double(), *args[1:], **kwargs)


_LOOPS: dict[str, Callable[[Mapping[str, Any], Sequence[torch.Tensor]], torch.Tensor]] = {
    "aten._grouped_mm.default": _grouped_mm,
    "aten._scaled_grouped_mm.default": _scaled_grouped_mm,
    "aten._scaled_mm.default": _scaled_mm,
    "aten.histc.default": _histogram,
}
"""Operators without an fp64 kernel of their own."""


def formula_of(op: str) -> tuple[Callable[..., object], ...]:
    """The formula of an operator and what it is made of, the formula last; empty where it needs none."""
    return (_grouped, _unscaled, _LOOPS[op]) if op in _LOOPS else ()
