"""Rows beside those that a model needs: its operators in the target's other dtypes and in other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0_worker.operators import resolve

from .needs import Need, group, retyped

_FLOATS = ("fp32", "bf16", "fp16", "fp64")


def neighbours(needs: Sequence[Need], dtypes: Sequence[str]) -> list[Need]:
    """Needs that nobody has now: those of the operators' neighbours, without what is already among the needs.

    Args:
        needs: of a model.
        dtypes: of the target's activations.
    """
    known = {need.key for need in needs}
    calls = [call for need in needs for call in (*_in_dtypes(need.example, dtypes), *_in_ranks(need.example))]
    return [need for need in group(calls) if need.key not in known]


def _in_dtypes(call: OperatorCall, dtypes: Sequence[str]) -> Iterator[OperatorCall]:
    own = [dtype for dtype in call.dtypes if dtype in _FLOATS]
    if len(set(own)) == 1:
        for dtype in dtypes:
            if dtype in _FLOATS and dtype != own[0]:
                yield from retyped([call], own[0], dtype)


def _in_ranks(call: OperatorCall) -> Iterator[OperatorCall]:
    """One dimension less and one more, for functions of single values, whose shapes mean nothing to them."""
    ranks = {len(shape) for shape in call.shapes if shape}
    if torch.Tag.pointwise not in resolve(call.op).tags or len(ranks) != 1 or _has_sizes(call):
        return
    (rank,) = ranks
    yield _resized(call, grow=True)
    if rank > 1 and all(shape[0] == 1 for shape in call.shapes if shape):
        yield _resized(call, grow=False)


def _has_sizes(call: OperatorCall) -> bool:
    return any(isinstance(value, (list, tuple)) for value in call.attributes.values())


def _resized(call: OperatorCall, *, grow: bool) -> OperatorCall:
    shapes = [([1, *shape] if grow else shape[1:]) if shape else shape for shape in call.shapes]
    return call.model_copy(
        update={
            "args": [_encoded(arg, grow) for arg in call.args],
            "kwargs": {name: _encoded(value, grow) for name, value in call.kwargs.items()},
            "shapes": shapes,
        }
    )


def _encoded(value: Any, grow: bool) -> Any:
    facts = value.get("tensor") if isinstance(value, dict) else None
    if facts is None or not facts["shape"]:
        return value
    shape, stride = list(facts["shape"]), list(facts["stride"])
    if grow:
        return {"tensor": {**facts, "shape": [1, *shape], "stride": [shape[0] * stride[0], *stride]}}
    return {"tensor": {**facts, "shape": shape[1:], "stride": stride[1:]}}
