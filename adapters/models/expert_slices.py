"""Weight expressions of some experts out of those of all, so that no byte of any other is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from day0_worker.dequantise import PARTS
from day0_worker.dtypes import torch_dtype
from day0_worker.stack import StackError
from day0_worker.weights import described


def compacted(expression: Any, ids: Sequence[int]) -> Any:
    """The expression of the parameter [len(ids), ...] that consists of these experts.

    Args:
        expression: of a parameter [experts, ...], resolved: its leaves name files and offsets.
        ids: experts, in any order.

    Raises:
        ValueError: the first dimension cannot be taken apart there, or an expert is not one of those.
    """
    try:
        shape, _ = described(expression, {})
        if not shape or not all(0 <= index < shape[0] for index in ids):
            raise ValueError(f"experts {list(ids)[:8]} of a parameter of shape {shape}")
        return _picked(expression, ids, 0)
    except (KeyError, TypeError, IndexError, StackError) as error:
        raise ValueError(f"an expression cannot be taken apart by experts: {error!r}") from error


def _picked(expression: Mapping[str, Any], ids: Sequence[int], dim: int) -> Any:
    """The expression with only these indices of one dimension of its result."""
    if "file" in expression:
        return _picked_leaf(expression, ids, dim)
    if "stack" in expression:
        at = expression["dim"] % (len(described(expression["stack"][0], {})[0]) + 1)
        if at == dim:
            return {**expression, "stack": [expression["stack"][index] for index in ids]}
        inner = dim if dim < at else dim - 1
        return {**expression, "stack": [_picked(part, ids, inner) for part in expression["stack"]]}
    if "dequantize" in expression:
        return _picked_quantised(expression, ids, dim)
    size = len(described(expression, {})[0])
    if "transpose" in expression:
        first, second = (at % size for at in expression["dims"])
        inner = {first: second, second: first}.get(dim, dim)
        return {**expression, "transpose": _picked(expression["transpose"], ids, inner)}
    if "reshape" in expression:
        return _picked_reshape(expression, ids, dim)
    if expression["dim"] % size == dim:
        raise ValueError(f"experts lie along the dimension {dim} of a cat, chunk or narrow")
    if "cat" in expression:
        return {**expression, "cat": [_picked(part, ids, dim) for part in expression["cat"]]}
    key = "chunk" if "chunk" in expression else "narrow"
    return {**expression, key: _picked(expression[key], ids, dim)}


def _picked_leaf(leaf: Mapping[str, Any], ids: Sequence[int], dim: int) -> Any:
    if dim != 0:
        raise ValueError(f"experts lie along the dimension {dim} of a tensor")
    shape = list(leaf["shape"])
    size = math.prod(shape[1:]) * torch_dtype(leaf["dtype"]).itemsize
    parts = [
        {**leaf, "offset": leaf["offset"] + start * size, "shape": [length, *shape[1:]]}
        for start, length in _runs(ids)
    ]
    return parts[0] if len(parts) == 1 else {"cat": parts, "dim": 0}


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and number of ids that follow each other."""
    start, length = ids[0], 1
    for before, index in pairwise(ids):
        if index == before + 1:
            length += 1
            continue
        yield start, length
        start, length = index, 1
    yield start, length


def _picked_quantised(expression: Mapping[str, Any], ids: Sequence[int], dim: int) -> Any:
    shape, _ = described(expression, {})
    if dim != 0 or len(shape) < 3:
        raise ValueError(f"experts lie along the dimension {dim} of a quantised weight of shape {shape}")
    picked = {**expression}
    for key in PARTS:
        if key not in expression or key == "stored_shape":
            continue
        part, _ = described(expression[key], {})
        if part and part[0] == shape[0]:
            picked[key] = _picked(expression[key], ids, 0)
        elif math.prod(part) != 1:
            raise ValueError(f"{key} {part} is not one for each of {shape[0]} experts")
    return picked


def _picked_reshape(expression: Mapping[str, Any], ids: Sequence[int], dim: int) -> Any:
    before, after = described(expression["reshape"], {})[0], list(expression["shape"])
    kept = len(before) > dim and before[:dim] == after[:dim] and before[dim] == after[dim]
    if not kept:
        raise ValueError(f"experts are lost where {before} becomes {after}")
    after[dim] = len(ids)
    return {**expression, "reshape": _picked(expression["reshape"], ids, dim), "shape": after}
