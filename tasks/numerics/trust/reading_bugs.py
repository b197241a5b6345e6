"""Bugs in how the checkpoint is read, which only a check of the reference shows: the target shares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node, Skeleton, WeightRecipe
from day0.adapters.base.values import json_number
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.stock_model import StockLogits, stock_logits

from ... import thresholds
from ...reference_arm import ArmError, reference_options
from ..record_parts import BugResult
from .reference_check import against_stock

WHERE = "checkpoint"
_TOKENS = 64
Change = Callable[[Sequence[Node]], "Sequence[Node] | None"]
"""The nodes with the bug; None where they cannot have it."""


def try_reading_bugs(
    release: Release, skeleton: Skeleton, tokens: Sequence[int], memory: int
) -> list[BugResult]:
    """Reads the checkpoint with each bug and has the reference that comes of it checked.

    Args:
        release: whose weights are read.
        skeleton: of it.
        tokens: token ids of one sequence; its beginning is used.
        memory: bytes that the stock model may take.
    """
    held = sum(info.bytes for info in release.checkpoint.tensors.values())
    if held > thresholds.NUMERICS_SAY_BYTES:
        why = "the whole checkpoint would be read once more for each bug"
        return [BugResult(bug=bug, where=WHERE, reason=why) for bug in CHANGES]
    ids = list(tokens[:_TOKENS])
    stock = stock_logits(release, skeleton, ids, memory)
    return [_tried(bug, change, release, skeleton, ids, stock) for bug, change in CHANGES.items()]


def _tried(
    bug: str,
    change: Change,
    release: Release,
    skeleton: Skeleton,
    ids: Sequence[int],
    stock: StockLogits,
) -> BugResult:
    changed = change(skeleton.nodes)
    if changed is None:
        return BugResult(bug=bug, where=WHERE, reason="the checkpoint has nothing of the kind")
    if stock.logits is None:
        return BugResult(bug=bug, where=WHERE, reason=f"{stock.name} was not run: {stock.reason}")
    other = skeleton.model_copy(update={"nodes": tuple(changed)})
    routed = any(node.feed_forward == "moe" for node in skeleton.nodes)
    try:
        arm = StreamingReference(other, release.checkpoint, options=reference_options({}))
        logits = arm.forward([list(ids)])[0].float()
    except (Day0Error, ArmError) as error:
        return BugResult(
            bug=bug,
            where=WHERE,
            applicability="yes",
            detected=True,
            block_right=True,
            by="error",
            dtype="fp32",
            reason=error.message,
        )
    found = against_stock(logits, stock, routed)
    return BugResult(
        bug=bug,
        where=WHERE,
        applicability="yes",
        effect=json_number(found.value / thresholds.REFERENCE_AGREES),
        detected=found.state == "fail",
        block_right=found.state == "fail",
        by="reference check",
        dtype="fp32",
    )


def _without_scales(nodes: Sequence[Node]) -> Sequence[Node] | None:
    """Numbers as they are stored, where they are not packed into others."""

    def plain(expression: Mapping[str, Any]) -> Any:
        return expression["weight"] if str(expression.get("dequantize", "")).startswith("fp8") else None

    return _edited(nodes, plain)


def _with_turned_scales(nodes: Sequence[Node]) -> Sequence[Node] | None:
    def turned(expression: Mapping[str, Any]) -> Any:
        if expression.get("dequantize") != "fp8_block":
            return None
        return {**expression, "scale": {"transpose": expression["scale"], "dims": [0, 1]}}

    return _edited(nodes, turned)


def _swapped_projections(nodes: Sequence[Node]) -> Sequence[Node] | None:
    """Keys and values exchanged in the first layer that has both in the same shape."""
    return _first(nodes, lambda node: _swap(node, ("k_proj.weight", "v_proj.weight")))


def _swapped_feed_forward(nodes: Sequence[Node]) -> Sequence[Node] | None:
    """The gate of a feed-forward exchanged with what it gates."""
    return _first(nodes, lambda node: _swap(node, ("gate_proj.weight", "up_proj.weight")))


def _swapped_layers(nodes: Sequence[Node]) -> Sequence[Node] | None:
    """The weights of two layers of one kind exchanged."""
    layers = [node for node in nodes if node.role == "layer" and node.called]
    for first, second in pairwise(layers):
        if first.kind == second.kind and first.weights and first.weights != second.weights:
            swapped = {first.name: second.weights, second.name: first.weights}
            return [
                node.model_copy(update={"weights": swapped[node.name]}) if node.name in swapped else node
                for node in nodes
            ]
    return None


def _transposed_square(nodes: Sequence[Node]) -> Sequence[Node] | None:
    """One square matrix read the wrong way round."""

    def turn(node: Node) -> Node | None:
        for name, recipe in node.weights.items():
            if len(recipe.shape) == 2 and recipe.shape[0] == recipe.shape[1] and node.role == "layer":
                turned = {"transpose": recipe.expression, "dims": [0, 1]}
                return _with(node, {name: recipe.model_copy(update={"expression": turned})})
        return None

    return _first(nodes, turn)


CHANGES: Mapping[str, Change] = {
    "reading:missing_block_scale": _without_scales,
    "reading:transposed_block_scale": _with_turned_scales,
    "reading:swapped_keys_and_values": _swapped_projections,
    "reading:swapped_gate": _swapped_feed_forward,
    "reading:swapped_layers": _swapped_layers,
    "reading:transposed_matrix": _transposed_square,
}
"""Bug -> what it does to the recipes of the weights."""


def _edited(nodes: Sequence[Node], edit: Callable[[Mapping[str, Any]], Any]) -> Sequence[Node] | None:
    """All nodes with every expression edited for which the edit gives one; None where there is none."""
    touched = False

    def walk(expression: Any) -> Any:
        nonlocal touched
        if isinstance(expression, list):
            return [walk(part) for part in expression]
        if not isinstance(expression, Mapping):
            return expression
        edited = edit(expression)
        if edited is not None:
            touched = True
            return edited
        return {key: walk(value) for key, value in expression.items()}

    changed = [
        _with(node, {name: recipe.model_copy(update={"expression": walk(recipe.expression)})
                     for name, recipe in node.weights.items()})
        for node in nodes
    ]  # fmt: skip
    return changed if touched else None


def _first(nodes: Sequence[Node], change: Callable[[Node], Node | None]) -> Sequence[Node] | None:
    for place, node in enumerate(nodes):
        changed = change(node) if node.called else None
        if changed is not None:
            return [*nodes[:place], changed, *nodes[place + 1 :]]
    return None


def _swap(node: Node, ends: tuple[str, str]) -> Node | None:
    for first, second in _pairs(node, ends):
        one, other = node.weights[first], node.weights[second]
        if list(one.shape) == list(other.shape):
            return _with(node, {first: other, second: one})
    return None


def _pairs(node: Node, ends: tuple[str, str]) -> Iterator[tuple[str, str]]:
    for name in node.weights:
        if name.endswith(ends[0]):
            other = name.removesuffix(ends[0]) + ends[1]
            if other in node.weights:
                yield name, other


def _with(node: Node, weights: Mapping[str, WeightRecipe]) -> Node:
    return node.model_copy(update={"weights": {**node.weights, **weights}})
