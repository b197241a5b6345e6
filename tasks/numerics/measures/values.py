"""Arguments and outputs of nodes, as trees of tensors: what is in them, and how far two of them are apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.target import Call

from .metrics import Distance, distance


class WrongOutput(Exception):
    """A target's output does not have the parts, shapes or dtypes of the reference's.

    Attributes:
        kind: `shape` or `dtype`, which of them.
    """

    def __init__(self, text: str, kind: str = "shape") -> None:
        super().__init__(text)
        self.kind = kind


def float_tensors(call: Call) -> list[Tensor]:
    """All floating tensors, in the order in which they stand in the tree."""
    found: list[Tensor] = []
    _collect(call.tree, call, found)
    return found


def same_call(one: Call, other: Call) -> bool:
    """Whether both are the same to the last bit, so that running both would show nothing."""
    return one.tree == other.tree and all(
        name in other.tensors
        and tensor.dtype == other.tensors[name].dtype
        and torch.equal(tensor, other.tensors[name])
        for name, tensor in one.tensors.items()
    )


def in_dtype(call: Call, dtype: torch.dtype) -> Call:
    """The call with all its floating tensors in one dtype."""
    cast = {name: t.to(dtype) if t.is_floating_point() else t for name, t in call.tensors.items()}
    return Call(call.tree, cast)


def joined(calls: Sequence[Call], rows: Sequence[Tensor | None]) -> list[Tensor]:
    """The floating tensors of one output, or of several alike, with padding left out.

    Args:
        calls: outputs of one node in forwards that are judged together.
        rows: of each, which of its [batch * length] tokens count; None: all.

    Returns:
        Each tensor as it is where there is one call without padding; else as [tokens, width].

    Raises:
        WrongOutput: the calls do not hold tensors of the same number and width.
    """
    lists = [float_tensors(call) for call in calls]
    if len(lists) == 1 and rows[0] is None:
        return lists[0]
    if len({len(tensors) for tensors in lists}) != 1:
        raise WrongOutput(f"gives {sorted({len(tensors) for tensors in lists})} floating tensors")
    flat = [[_counted(t, kept) for t in tensors] for tensors, kept in zip(lists, rows, strict=True)]
    try:
        return [torch.cat(parts) for parts in zip(*flat, strict=True)]
    except RuntimeError as error:
        raise WrongOutput(f"gives tensors of other widths from call to call: {error}") from error


def _counted(tensor: Tensor, rows: Tensor | None) -> Tensor:
    flat = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
    return flat[rows] if rows is not None and len(rows) == len(flat) else flat


def distances(
    target: Sequence[Tensor],
    reference: Sequence[Tensor],
    dtype: torch.dtype,
    *,
    rows: Tensor | None = None,
) -> list[Distance]:
    """The distance of each floating tensor of an output from the reference's.

    Args:
        target: of the target or the noise arm.
        reference: of the reference.
        dtype: in whose units in the last place errors are counted.
        rows: [tokens] bool, the tokens that count, in the tensors that have as many; None: all.

    Raises:
        WrongOutput: their number or a shape differs.
    """
    if len(target) != len(reference):
        raise WrongOutput(f"gives {len(target)} floating tensors, the reference gives {len(reference)}")
    try:
        return [
            distance(t, r, rows=rows_for(rows, r), dtype=dtype)
            for t, r in zip(target, reference, strict=True)
        ]
    except ValueError as error:
        raise WrongOutput(str(error)) from error


def check_dtypes(target: Sequence[Tensor], arm: Sequence[Tensor]) -> None:
    """Holds the dtypes of an output against those of the reference in the target's precision.

    Raises:
        WrongOutput: one differs, which the next node may not be able to take in.
    """
    for given, expected in zip(target, arm, strict=False):
        if given.dtype != expected.dtype:
            names = [str(dtype).removeprefix("torch.") for dtype in (given.dtype, expected.dtype)]
            raise WrongOutput(f"gives {names[0]} where the reference gives {names[1]}", "dtype")


def rows_for(rows: Tensor | None, tensor: Tensor) -> Tensor | None:
    """The tokens that count where they are this tensor's: a table of positions may have fewer."""
    width = tensor.shape[-1] if tensor.dim() else 1
    return rows if rows is not None and rows.numel() * width == tensor.numel() else None


def input_error(target: Call, reference: Call) -> float:
    """Largest relative L2 of an input that has the same shape on both sides; 0 where all are equal."""
    pairs = zip(float_tensors(target), float_tensors(reference), strict=False)
    errors = [distance(t, r).rel_l2 for t, r in pairs if t.shape == r.shape]
    return max((error for error in errors if error == error), default=0.0)


def signature(call: Call) -> str:
    """Digest of the bits of all floating tensors."""
    hashed = hashlib.sha256()
    for tensor in float_tensors(call):
        hashed.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        hashed.update(tensor_bytes(tensor))
    return hashed.hexdigest()[:16]


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bits of a tensor's elements, in order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _collect(tree: Any, call: Call, found: list[Tensor]) -> None:
    if isinstance(tree, dict):
        if set(tree) == {"$tensor"}:
            tensor = call.tensors[tree["$tensor"]]
            if tensor.is_floating_point():
                found.append(tensor)
            return
        for part in tree.values():
            _collect(part, call, found)
    elif isinstance(tree, list):
        for part in tree:
            _collect(part, call, found)
