"""Recipes of a node's weights with every tensor replaced by where its bytes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..base.checkpoint import Checkpoint, fetch_tensors
from ..base.errors import CheckpointError
from ..base.skeleton import Node
from .conversions import spelt


def resolve_weights(node: Node, checkpoint: Checkpoint) -> dict[str, Any]:
    """Expressions for the node's parameters whose leaves name files and offsets, as a target takes them.

    Args:
        node: of the skeleton.
        checkpoint: whose tensors the recipes name.

    Returns:
        Parameter name inside the node -> expression, for each parameter that has a recipe.

    Raises:
        CheckpointError: E330, a recipe names a tensor that the checkpoint does not have.
    """
    expressions = {name: recipe.expression for name, recipe in node.weights.items()}
    known = [name for name in _leaves(list(expressions.values())) if name in checkpoint.tensors]
    fetch_tensors(checkpoint, known)
    return {name: _resolved(expression, checkpoint) for name, expression in expressions.items()}


def _leaves(expression: Any) -> Iterator[str]:
    """Names of all tensors in an expression."""
    if isinstance(expression, list):
        for part in expression:
            yield from _leaves(part)
    elif isinstance(expression, Mapping):
        if "tensor" in expression:
            yield expression["tensor"]
        elif "each" in expression:
            for number in range(expression["from"], expression["to"]):
                yield from _leaves(spelt(expression["each"], number))
        else:
            yield from _leaves(list(expression.values()))


def _resolved(expression: Any, checkpoint: Checkpoint) -> Any:
    if isinstance(expression, list):
        return [_resolved(part, checkpoint) for part in expression]
    if not isinstance(expression, Mapping):
        return expression
    if "tensor" in expression:
        return _leaf(expression["tensor"], checkpoint)
    if "each" in expression:
        numbers = range(expression["from"], expression["to"])
        return [_resolved(spelt(expression["each"], number), checkpoint) for number in numbers]
    return {key: _resolved(value, checkpoint) for key, value in expression.items()}


def _leaf(name: str, checkpoint: Checkpoint) -> dict[str, Any]:
    info = checkpoint.tensors.get(name)
    if info is None:
        raise CheckpointError(
            f"tensor {name!r} is part of the structure but not of the checkpoint",
            code="E330",
            remedy="The files changed since the structure was read; run inventory again.",
        )
    return {
        "file": str(checkpoint.path(name)),
        "offset": info.offset,
        "dtype": info.dtype,
        "shape": list(info.shape),
    }
