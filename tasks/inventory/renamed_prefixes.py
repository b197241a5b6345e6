"""Prefixes under which two releases keep the same tensors: `model.` here, `language_model.model.` there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .record_counts import TensorPattern
from .structural_change import Renamed

_FEWEST = 2  # patterns that a prefix must explain; one alone may be chance
_MOST_PATTERNS = 5_000  # beyond it nobody wants to read a diff, and pairs take long
_MOST_PREFIXES = 8


def match_prefixes(
    before: Sequence[TensorPattern], after: Sequence[TensorPattern]
) -> tuple[Mapping[tuple[str, str], str], Sequence[Renamed]]:
    """Names of the earlier that the later has under another prefix.

    Returns:
        (part, earlier pattern) -> later pattern, and the prefixes by the number of patterns they explain.
    """
    earlier = {(row.part, row.pattern) for row in before}
    later = {(row.part, row.pattern) for row in after}
    lost, found = earlier - later, later - earlier
    renamed: dict[tuple[str, str], str] = {}
    told = []
    if not lost or not found or len(lost) + len(found) > _MOST_PATTERNS:
        return {}, ()
    for _ in range(_MOST_PREFIXES):
        candidates = _candidates(lost, found)
        if not candidates:
            break
        (old, new), number = min(
            candidates.items(), key=lambda item: (-item[1], len(item[0][0] + item[0][1]), item)
        )
        if number < _FEWEST:
            break
        pairs = [(key, _replaced(key, old, new)) for key in lost]
        matched = [(key, name) for key, name in pairs if name and (key[0], name) in found]
        renamed.update(matched)
        lost -= {key for key, _ in matched}
        found -= {(key[0], name) for key, name in matched}
        told.append(Renamed(before=old, after=new, patterns=len(matched)))
    return renamed, tuple(told)


def _candidates(lost: set[tuple[str, str]], found: set[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Pairs of prefixes -> patterns that they explain; a pair shares its longest common end."""
    by_end: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for part, name in found:
        segments = tuple(name.split("."))
        by_end.setdefault((part, *segments[-2:]), []).append(segments)
    number: Counter[tuple[str, str]] = Counter()
    for part, name in lost:
        segments = tuple(name.split("."))
        pairs = {_prefixes(segments, other) for other in by_end.get((part, *segments[-2:]), ())}
        number.update(pairs)
    return number


def _prefixes(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, str]:
    common = 0
    while common < min(len(old), len(new)) and old[-1 - common] == new[-1 - common]:
        common += 1
    return ".".join(old[: len(old) - common]), ".".join(new[: len(new) - common])


def _replaced(key: tuple[str, str], old: str, new: str) -> str:
    name = key[1]
    if old and not name.startswith(f"{old}."):
        return ""
    rest = name[len(old) + 1 :] if old else name
    return f"{new}.{rest}" if new else rest
