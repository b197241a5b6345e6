"""Any number of tensor names as a few rows: a pattern with the exact sets of its indices, no hole hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from day0.adapters.base.checkpoint import TensorBlock, TensorKind
from day0.adapters.checkpoints.table import TensorTable

from .index_sets import format_indices
from .patterns import Group, Pattern, list_tensors

MAX_ROWS = 40  # of one pattern; layers that are damaged each in its own way end in one row that says so
_NO_KIND = TensorKind("", (), 0)


@dataclass(frozen=True)
class Fold:
    """Tensors of one pattern.

    Attributes:
        pattern: of their names.
        layers: exact set of layer indices; empty where the pattern has none.
        experts: exact set of expert indices; empty where it has none.
        others: exact set of each other placeholder's indices, in their order.
        tensors: how many.
        whole: whether they are exactly the product of these sets.
        example: the first name.
    """

    pattern: str
    layers: str
    experts: str
    others: Sequence[str]
    tensors: int
    whole: bool
    example: str

    @property
    def where(self) -> str:
        """The sets in words, e.g. `layers 3-60, experts 157-255`; empty for a single tensor."""
        named = (
            ("layers", self.layers),
            ("experts", self.experts),
            *(("indices", text) for text in self.others),
        )
        parts = [f"{word} {indices}" for word, indices in named if indices]
        return ", ".join(parts) + ("" if self.whole else " (not all combinations)")


def group_names(names: Iterable[str]) -> Sequence[Group]:
    """Names as groups: one for each pattern and layer."""
    listed = list(dict.fromkeys(names))
    block = TensorBlock("", listed, [_NO_KIND] * len(listed), [0] * len(listed))
    return list_tensors(TensorTable([block])).groups


def fold_names(names: Iterable[str]) -> Sequence[Fold]:
    """Distinct names, folded."""
    return fold_groups(
        (group.pattern, group.layer, group.others or [()], group.example) for group in group_names(names)
    )


def fold_groups(
    groups: Iterable[tuple[Pattern, int | None, Iterable[tuple[str, ...]], str]],
) -> Sequence[Fold]:
    """Index tuples by pattern and layer, folded: layers that lack the same indices share a row.

    Args:
        groups: pattern, layer, the other indices of each tensor (one empty tuple where there are none), an
            example.
    """
    rows: dict[str, dict[frozenset[tuple[str, ...]], tuple[Pattern, list[int], str]]] = {}
    for pattern, layer, others, example in groups:
        alike = rows.setdefault(pattern.text, {})
        _, layers, _ = alike.setdefault(frozenset(others), (pattern, [], example))
        if layer is not None:
            layers.append(layer)
    return [fold for alike in rows.values() for fold in _bounded(alike)]


def _bounded(alike: dict[frozenset[tuple[str, ...]], tuple[Pattern, list[int], str]]) -> Sequence[Fold]:
    folds = [_fold(pattern, layers, others, example) for others, (pattern, layers, example) in alike.items()]
    if len(folds) <= MAX_ROWS:
        return folds
    rest = list(alike.items())[MAX_ROWS - 1 :]
    pattern, _, example = rest[0][1]
    layers = sorted({layer for _, (_, layers, _) in rest for layer in layers})
    merged = _fold(pattern, layers, frozenset().union(*(others for others, _ in rest)), example)
    number = sum(fold.tensors for fold in folds[MAX_ROWS - 1 :])
    return [*folds[: MAX_ROWS - 1], Fold(pattern.text, merged.layers, merged.experts, merged.others,
                                         number, False, example)]  # fmt: skip


def _fold(pattern: Pattern, layers: Sequence[int], others: frozenset[tuple[str, ...]], example: str) -> Fold:
    slots = [{int(index) for index in column} for column in zip(*others, strict=True)]
    expert = pattern.expert_slot - (0 <= pattern.layer_slot < pattern.expert_slot)
    sets = [format_indices(slot) for slot in slots]
    return Fold(
        pattern=pattern.text,
        layers=format_indices(layers),
        experts=sets[expert] if 0 <= expert < len(sets) else "",
        others=[text for slot, text in enumerate(sets) if slot != expert],
        tensors=len(others) * max(1, len(layers)),
        whole=len(others) == prod(len(slot) for slot in slots),
        example=example,
    )
