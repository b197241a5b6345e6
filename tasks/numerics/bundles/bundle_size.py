"""How large a bundle will be, before the walk that fills it."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.skeleton import Node

from ..walk.case import Case


def expected_size(case: Case) -> tuple[int, int]:
    """About how many bytes a bundle of the case takes, and how many of these are for logits.

    Each token's output of a node is kept three times (reference; noise arm on the same input and on its own
    stream), its input once, in the target's dtype. Masks, rotary embeddings and what routers chose are extra.
    Both are zero where no node is known as the embedding, from whose shape vocabulary and width are read.
    """
    tokens = sum(sum(map(len, step.ids)) for step in case.passes if not step.alone)
    vocabulary, width = _embedding(case.skeleton.nodes)
    layers = sum(node.role == "layer" for node in case.skeleton.nodes)
    reference, lowered = BITS[case.reference_dtype] // 8, BITS[case.dtype] // 8
    logits = tokens * vocabulary * (reference + 2 * lowered)
    return logits + tokens * layers * width * (reference + 3 * lowered), logits


def _embedding(nodes: Sequence[Node]) -> tuple[int, int]:
    """Size of the vocabulary and width of the stream."""
    for node in nodes:
        if node.role == "embedding":
            for recipe in node.weights.values():
                if len(recipe.shape) == 2:
                    return recipe.shape[0], recipe.shape[1]
    return 0, 0
