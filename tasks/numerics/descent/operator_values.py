"""Whether one result of an operator is what its inputs explain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.operator_call import OperatorCall

from ..measures.judge import judge
from ..measures.metrics import distance

_CHOOSING = frozenset({"topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue", "median"})
"""Operators whose whole numbers say where a value was found: among equal values any place is right."""


def off(
    got: Any, exact: Any, own: Any, *, call: OperatorCall | None = None, given: Tensor | None = None
) -> str:
    """What is wrong with a value; empty where it is right.

    Args:
        got: the target's, a tensor or a number.
        exact: the same in fp64.
        own: the same from the CPU's kernel in the target's dtype: its distance from `exact` is the noise.
        call: the operator whose result it is, with its attributes; None: it is an argument.
        given: the operator's first tensor.
    """
    if not isinstance(own, Tensor) or not isinstance(got, Tensor):
        same = got == own or (got != got and own != own)
        return (
            "" if same or isinstance(got, Tensor) != isinstance(own, Tensor) else f"{got} where {own} is due"
        )
    if got.shape != own.shape:
        return f"shape {list(got.shape)} where {list(own.shape)} is due"
    if not got.numel() or torch.equal(got, own):
        return ""
    if own.is_complex():
        got, exact, own = (torch.view_as_real(one.resolve_conj()) for one in (got, exact, own))
    if not own.is_floating_point():
        return _whole(got, own, call, given)
    return _floating(got, exact, own)


def _floating(got: Tensor, exact: Tensor, own: Tensor) -> str:
    if not got.is_floating_point():
        return f"{got.dtype} where {own.dtype} is due".replace("torch.", "")
    eps = torch.finfo(own.dtype).eps
    found = judge(distance(got, exact), distance(own, exact), eps=eps)
    return str(found.excess) if found.excess is not None else ""


def _whole(got: Tensor, own: Tensor, call: OperatorCall | None, given: Tensor | None) -> str:
    wrong = int((got != own.to(got.dtype)).sum())
    if not wrong:
        return ""
    if call is not None and given is not None and call.op.split(".")[1] in _CHOOSING:
        dim = call.attributes.get("dim", -1)
        if type(dim) is int and given.dim() and _same_values(got, own, given, dim, call):
            return ""
    return f"{wrong} of {got.numel()} values differ"


def _same_values(got: Tensor, own: Tensor, given: Tensor, dim: int, call: OperatorCall) -> bool:
    """Whether the places that were found hold equal values."""
    if got.dim() != given.dim():
        got, own = got.unsqueeze(dim), own.unsqueeze(dim)
    if got.dim() != given.dim() or bool((got < 0).any() | (got >= given.shape[dim]).any()):
        return False
    ours, theirs = given.gather(dim, own.long()), given.gather(dim, got.long())
    if call.attributes.get("sorted") is False:
        ours, theirs = ours.sort(dim).values, theirs.sort(dim).values
    return torch.equal(ours, theirs)
