"""Arguments and outputs of nodes, as trees of tensors: what is in them, and how far two of them are apart."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.target import Call

from .metrics import Distance, distance


class WrongOutput(Exception):
    """A target's output does not have the parts or shapes of the reference's."""


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


def distances(target: Call, reference: Call) -> list[Distance]:
    """The distance of each floating tensor of an output from the reference's.

    Raises:
        WrongOutput: their number or a shape differs.
    """
    theirs, ours = float_tensors(target), float_tensors(reference)
    if len(theirs) != len(ours):
        raise WrongOutput(f"gives {len(theirs)} floating tensors, the reference gives {len(ours)}")
    try:
        return [distance(t, r) for t, r in zip(theirs, ours, strict=True)]
    except ValueError as error:
        raise WrongOutput(str(error)) from error


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
        hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


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
