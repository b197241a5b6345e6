"""The distribution folded for reading: equal layers once, under exact index sets; nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .index_sets import format_indices
from .record_distribution import Distribution, Share


@dataclass(frozen=True)
class Fold:
    """Layers that are equal in every role, or one part outside the layers.

    Attributes:
        part: of the model, e.g. `text`.
        path: module path without the index, e.g. `model.layers`.
        layers: exact set of indices, e.g. `0-2,4-60`; empty outside the layers.
        number: how many layers; 1 outside.
        rows: the roles of ONE of them.
    """

    part: str
    path: str
    layers: str
    number: int
    rows: Sequence[Share]

    @property
    def place(self) -> str:
        """E.g. `model.layers 0-2`, `lm_head`."""
        return f"{self.path} {self.layers}".strip()


def fold_layers(distribution: Distribution) -> Sequence[Fold]:
    """The rows of the distribution, those of equal layers once, in their order."""
    layers: dict[tuple[str, str], list[Share]] = {}
    for row in distribution.rows:
        layers.setdefault(
            (row.part, row.name if row.index is not None else f"\0{row.role} {row.name}"), []
        ).append(row)
    alike: dict[tuple[object, ...], list[Sequence[Share]]] = {}
    for rows in layers.values():
        alike.setdefault(_likeness(rows), []).append(rows)
    return [_fold(group) for group in alike.values()]


def _likeness(rows: Sequence[Share]) -> tuple[object, ...]:
    """Everything that two equal layers have in common."""
    first = rows[0]
    stack = first.name.rpartition(".")[0] if first.index is not None else (first.name, first.role)
    return (
        first.part, stack, first.kind, first.feed_forward,
        *((row.role, row.tensors, row.params, row.active_params, row.bytes, row.inner,
           row.kv_bytes_per_token, row.window, row.state_bytes_per_sequence) for row in rows),
    )  # fmt: skip


def _fold(group: Sequence[Sequence[Share]]) -> Fold:
    first = group[0][0]
    indices = [rows[0].index for rows in group if rows[0].index is not None]
    path = first.name.rpartition(".")[0] if indices else first.name
    return Fold(first.part, path, format_indices(indices), max(1, len(indices)), group[0])
