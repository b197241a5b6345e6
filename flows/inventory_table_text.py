"""Tables of the inventory for a terminal: layers by role, and memory per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.reports.words import bytes_text, count_text, exact_text, plural
from day0.tasks.inventory.record_distribution import Distribution, LayoutMemory, Share
from day0.tasks.inventory.table import Fold, fold_layers

from .text_layout import aligned, with_last_wrapped, wrapped

NARROW = 100
"""Columns below which numbers are told short and activations are left to the CSV file."""
_MOST_ROWS = 40
_NUMBERS = (1, 4, 5, 6)  # columns of the flat table set to the right
_SHORT_NUMBERS = 30  # columns that the short table's numbers and gaps take
_BASIS = {"tensors": "", "implied": ", implied by the config", "config": ": state and shapes alone"}
_HEAD = ("layers", "x", "kind", "role", "parameters", "active", "bytes", "activations")
_SHORT_HEAD = ("layers", "x", "kind", "role", "params", "active", "bytes")


def distribution_lines(distribution: Distribution, width: int) -> Iterator[str]:
    """Layer by role, equal layers once: in one table where it fits, else each kind of layer by itself.

    Args:
        distribution: of the inventory.
        width: columns.
    """
    folds, more = _bounded(fold_layers(distribution))
    if not folds:
        return
    yield f"one of each set of equal layers{_BASIS[distribution.basis]}"
    short = width < NARROW
    table = [f"  {line}" for line in aligned(_flat(folds, short), _NUMBERS)]
    if max(map(len, table)) > width:
        table = [f"  {line}" for line in _grouped(folds, short, width - 2)]
    yield from table
    if more:
        yield f"  ... and {plural(more, 'more row', 'more rows')}; all with --csv FILE"
    if short:
        yield "  exact numbers and activations with --csv FILE, or in 100 columns"


def _bounded(folds: Sequence[Fold]) -> tuple[Sequence[tuple[Fold, Sequence[Share]]], int]:
    """The first rows, by their sets of layers, and how many are left out."""
    shown: list[tuple[Fold, Sequence[Share]]] = []
    left = _MOST_ROWS
    for fold in folds:
        if left > 0:
            shown.append((fold, fold.rows[:left]))
        left -= len(fold.rows)
    return shown, max(0, -left)


def _flat(folds: Sequence[tuple[Fold, Sequence[Share]]], short: bool) -> Sequence[Sequence[str]]:
    rows: list[Sequence[str]] = [_SHORT_HEAD if short else _HEAD]
    for fold, shares in folds:
        place = (fold.place, str(fold.number), _kind(fold))
        for number, share in enumerate(shares):
            rows.append((*(place if number == 0 else ("", "", "")), share.role, *_cells(share, short)))
    return rows


def _grouped(folds: Sequence[tuple[Fold, Sequence[Share]]], short: bool, width: int) -> Iterator[str]:
    """The layers on a line of their own, their roles below, so that long paths cost the table no room."""
    rows: list[Sequence[str]] = [("", *(_SHORT_HEAD if short else _HEAD)[4:])]
    starts: dict[int, str] = {}
    for fold, shares in folds:
        own = f"{fold.place}{_times(fold)}"
        if short and len(shares) == 1 and len(own) + len(shares[0].role) < width - _SHORT_NUMBERS:
            rows.append((f"{own}: {shares[0].role}", *_cells(shares[0], short)))
            continue
        starts[len(rows)] = own
        rows += [(f"  {share.role}", *_cells(share, short)) for share in shares]
    lines = ([line] for line in aligned(rows, (1, 2, 3))) if short else _with_activations(rows, width)
    for number, held in enumerate(lines):
        if number in starts:
            yield from wrapped(starts[number], width, "", "  ")
        yield from held


def _with_activations(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[str]]:
    """Each row in as many lines as its activations take."""
    filled = list(aligned([row[:-1] for row in rows], (1, 2, 3)))
    start = max(map(len, filled)) + 2
    for line, row in zip(filled, rows, strict=True):
        yield list(wrapped(row[-1], width, line.ljust(start), " " * start)) if row[-1] else [line]


def _times(fold: Fold) -> str:
    kind = _kind(fold)
    if fold.number == 1:
        return f": {kind}" if kind else ""
    return f": {fold.number} x {kind}" if kind else f": {fold.number} of them"


def _kind(fold: Fold) -> str:
    return " ".join(filter(None, (fold.rows[0].kind, fold.rows[0].feed_forward)))


def _cells(share: Share, short: bool) -> Sequence[str]:
    number_text, size_text = (count_text, bytes_text) if short else (exact_text, exact_text)
    counts = (number_text(share.params), number_text(share.active_params), size_text(share.bytes))
    if not share.tensors:  # none is known, which is not to say that there is none
        counts = ("unknown",) * 3
    activations = " -> ".join(filter(None, (share.input, share.inner, share.output)))
    return counts if short else (*counts, activations)


def memory_lines(layouts: Sequence[LayoutMemory], width: int) -> Iterator[str]:
    """What the fullest and the emptiest rank hold, layout by layout.

    Args:
        layouts: of the inventory.
        width: columns.
    """
    if not layouts:
        return
    rows: list[Sequence[str]] = [("layout", "ranks", "weights", "emptiest", "KV/token", "state", "")]
    for item in layouts:
        layout = _without_ones(item.layout)
        if not item.possible:
            rows.append((layout, exact_text(item.ranks), "", "", "", "", f"not possible: {item.reason}"))
            continue
        cached = item.kv_bytes_per_token_max or item.state_bytes_per_sequence_max
        rows.append(
            (
                layout,
                exact_text(item.ranks),
                bytes_text(item.weights_bytes_max) if item.weights_bytes_max else "unknown",
                bytes_text(item.weights_bytes_min) if item.weights_bytes_max else "unknown",
                exact_text(item.kv_bytes_per_token_max) if cached else "unknown",
                exact_text(item.state_bytes_per_sequence_max) if cached else "unknown",
                "; ".join((*_apart(item), *item.notes)),
            )
        )
    yield from wrapped("expected on the fullest rank, before activations and an engine's reserve", width)
    if width >= NARROW:
        yield from (f"  {line}" for line in with_last_wrapped(rows, (1, 2, 3, 4, 5), width - 2))
        return
    table = aligned([row[:-1] for row in rows], (1, 2, 3, 4, 5))
    for line, row in zip(table, rows, strict=True):
        yield f"  {line}"
        if row[-1]:
            yield from wrapped(row[-1], width, "    ", "    ")


def _apart(item: LayoutMemory) -> Iterator[str]:
    """What is told apart from the weights, so that these and it add up."""
    if item.mtp_bytes_max:
        yield f"multi-token prediction apart, {bytes_text(item.mtp_bytes_max)} more"


def _without_ones(layout: str) -> str:
    """The layout without what is 1."""
    return ",".join(part for part in layout.split(",") if not part.endswith("=1")) or "one rank"
