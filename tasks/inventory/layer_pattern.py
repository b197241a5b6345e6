"""How kinds of layers follow each other, as one line: `3x linear + 1x full, repeated 12`."""

from __future__ import annotations

from collections.abc import Sequence

from .index_sets import format_indices
from .record import Layer
from .record_structure import LayerGroup, LayerPattern

_MOST_RUNS = 16  # of a pattern without a period that the line spells out; the sets are exact anyway
_LONGEST_PERIOD = 64
_LONGEST_STACK = 1024  # layers among which a period is looked for


def layer_pattern(layers: Sequence[Layer]) -> LayerPattern:
    """The pattern of the deepest stack of layers and the exact set of each kind."""
    stacks: dict[str, list[Layer]] = {}
    for layer in layers:
        stacks.setdefault(layer.name.rpartition(".")[0], []).append(layer)
    texts, groups = [], []
    for name, stack in stacks.items():
        ordered = sorted(stack, key=lambda layer: layer.index)
        text = _describe(_labels(ordered))
        texts.append(f"{name}: {text}" if len(stacks) > 1 else text)
        kinds: dict[tuple[str, str], list[int]] = {}
        for layer in ordered:
            kinds.setdefault((layer.kind, layer.feed_forward), []).append(layer.index)
        groups += [
            LayerGroup(kind=kind, feed_forward=feed, layers=format_indices(indices))
            for (kind, feed), indices in kinds.items()
        ]
    return LayerPattern(text="; ".join(texts), groups=tuple(groups))


def _labels(layers: Sequence[Layer]) -> Sequence[str]:
    """One word or two a layer: the feed-forward is left out where all layers have the same."""
    mixed = len({layer.feed_forward for layer in layers}) > 1
    return [
        " ".join(filter(None, (layer.kind, layer.feed_forward if mixed or not layer.kind else ""))) or "other"
        for layer in layers
    ]


def _describe(labels: Sequence[str]) -> str:
    best, text = len(_runs(labels)), _spell(labels)
    if best < 3 or len(labels) > _LONGEST_STACK:
        return text
    for start in _starts(labels):
        for period in range(2, min(_LONGEST_PERIOD, (len(labels) - start) // 2) + 1):
            if labels[start : len(labels) - period] != labels[start + period :]:
                continue
            times, rest = divmod(len(labels) - start, period)
            tail = labels[len(labels) - rest :] if rest else []
            unit = labels[start : start + period]
            cost = len(_runs(labels[:start])) + len(_runs(unit)) + len(_runs(tail))
            if cost < best:
                best = cost
                parts = (_spell(labels[:start]), f"{_spell(unit)}, repeated {times}", _spell(tail))
                text = ", then ".join(filter(None, parts))
    return text


def _starts(labels: Sequence[str]) -> Sequence[int]:
    """Where a period may begin: at the first layers, where runs of equal ones change."""
    changes = [place for place in range(1, len(labels)) if labels[place] != labels[place - 1]]
    return sorted({0, 1, 2, 3, *changes[:8]})


def _runs(labels: Sequence[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for label in labels:
        if runs and runs[-1][0] == label:
            runs[-1] = (label, runs[-1][1] + 1)
        else:
            runs.append((label, 1))
    return runs


def _spell(labels: Sequence[str]) -> str:
    runs = _runs(labels)
    text = " + ".join(f"{number}x {label}" for label, number in runs[:_MOST_RUNS])
    return text + (f" + {len(runs) - _MOST_RUNS} more runs" if len(runs) > _MOST_RUNS else "")
