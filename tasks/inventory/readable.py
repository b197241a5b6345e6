"""A stranger's names inside a sentence."""

from __future__ import annotations

from day0.adapters.checkpoints.strict_json import shorten

_LONGEST = 160


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 file`, `12 files`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def readable(name: str) -> str:
    """The name itself where it is short and printable, else quoted, escaped and cut."""
    return name if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST else shorten(name)
