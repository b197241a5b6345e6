"""Recipes of a node's weights with every tensor replaced by where its bytes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    known = [name for name in tensors_in(list(expressions.values())) if name in checkpoint.tensors]
    fetch_tensors(checkpoint, known)
    return {
        name: resolved(expression, lambda tensor: leaf_of(tensor, checkpoint))
        for name, expression in expressions.items()
    }


def tensors_in(expression: Any) -> Iterator[str]:
    """Names of all tensors in an expression."""
    if isinstance(expression, list):
        for part in expression:
            yield from tensors_in(part)
    elif isinstance(expression, Mapping):
        if "tensor" in expression:
            yield expression["tensor"]
        elif "each" in expression:
            for number in range(expression["from"], expression["to"]):
                yield from tensors_in(spelt(expression["each"], number))
        else:
            yield from tensors_in(list(expression.values()))


def resolved(expression: Any, leaf: Callable[[str], dict[str, Any]]) -> Any:
    """The expression with the leaf of its name in place of every tensor, and every list spelt out."""
    if isinstance(expression, list):
        return [resolved(part, leaf) for part in expression]
    if not isinstance(expression, Mapping):
        return expression
    if "tensor" in expression:
        return leaf(expression["tensor"])
    if "each" in expression:
        numbers = range(expression["from"], expression["to"])
        return [resolved(spelt(expression["each"], number), leaf) for number in numbers]
    return {key: resolved(value, leaf) for key, value in expression.items()}


def is_leaf(expression: Any) -> bool:
    """Whether a resolved expression is the bytes of a tensor as they stand in a file."""
    return isinstance(expression, Mapping) and "file" in expression


def leaf_of(name: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Where a tensor's bytes are on this machine, fetched first where they are not.

    Raises:
        CheckpointError: E330, the checkpoint does not have it.
    """
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
