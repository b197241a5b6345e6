"""Weights in a format that needs scales, of which the checkpoint has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton

from ...finding import Finding, Subject, make_finding

_NARROW = frozenset({"fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "int8"})
"""Formats whose numbers mean something only times a scale, unless the whole checkpoint was merely cast."""


def unscaled_findings(release: Release, skeleton: Skeleton) -> list[Finding]:
    """A finding for each node that has such weights.

    Reading takes them as they stand, for the reference, for stock transformers and for the target alike, so
    that no comparison shows what is wrong with them.

    Args:
        release: whose checkpoint is read.
        skeleton: of it.
    """
    checkpoint = release.checkpoint
    plain: dict[str, list[str]] = {}
    scaled: Counter[str] = Counter()
    stated = bool(release.config.get("quantization_config"))
    for node in skeleton.nodes:
        for recipe in node.weights.values():
            for name, has_scale in _stored(recipe.expression, False):
                dtype = checkpoint.tensors[name].dtype if name in checkpoint.tensors else ""
                if dtype in _NARROW and has_scale:
                    scaled[dtype] += 1
                elif dtype in _NARROW:
                    plain.setdefault(node.name, []).append(name)
    found = []
    for node_name, names in plain.items():
        lacking = [name for name in names if stated or scaled[checkpoint.tensors[name].dtype]]
        if lacking:
            found.append(_finding(node_name, lacking, checkpoint.tensors[lacking[0]].dtype))
    return found


def _finding(node: str, names: Sequence[str], dtype: str) -> Finding:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    said = (
        f"{names[0]}{more} of {node} is stored in {dtype} and the checkpoint has no scale for it: reference "
        "and target took its numbers as they stand."
    )
    return make_finding("NUM035", Subject(kind="node", name=node), said, evidence=tuple(names))


def _stored(expression: Any, scaled: bool) -> Iterator[tuple[str, bool]]:
    """Each tensor that an expression reads, and whether it stands where numbers are scaled."""
    if isinstance(expression, Mapping):
        if isinstance(expression.get("tensor"), str):
            yield expression["tensor"], scaled
        inner = scaled or "dequantize" in expression
        for value in expression.values():
            yield from _stored(value, inner)
    elif isinstance(expression, list | tuple):
        for value in expression:
            yield from _stored(value, scaled)
