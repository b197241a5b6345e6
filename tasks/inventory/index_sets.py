"""Sets of indices as exact text: `0-2,4-6`, every second one `0-22:2`; a hole is never hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_FEWEST = 3  # indices that make a stepped range shorter than the list of them


def format_indices(indices: Iterable[int]) -> str:
    """The sorted, distinct indices as ranges, e.g. `0-20,22-25` or `0-22:2`; empty for none."""
    ordered = sorted(set(indices))
    parts: list[str] = []
    start = 0
    while start < len(ordered):
        stop = _run(ordered, start)
        first, last = ordered[start], ordered[stop - 1]
        step = (ordered[start + 1] - first) if stop - start > 1 else 1
        parts.append(str(first) if first == last else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        start = stop
    return ",".join(parts)


def layers_text(indices: str) -> str:
    """`layer 3`, `layers 3-60` for an exact set."""
    return f"layer{'' if indices.isdecimal() else 's'} {indices}"


def parse_indices(text: str) -> tuple[int, ...]:
    """Inverse of `format_indices`.

    Raises:
        ValueError: the text is not of that form.
    """
    indices: list[int] = []
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        indices.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(indices)


def _run(ordered: Sequence[int], start: int) -> int:
    """Where the longest run of equal steps that begins at `start` ends."""
    stop = start + 1
    if stop == len(ordered):
        return stop
    step = ordered[stop] - ordered[start]
    while stop < len(ordered) and ordered[stop] - ordered[stop - 1] == step:
        stop += 1
    return stop if step == 1 or stop - start >= _FEWEST else start + 1
