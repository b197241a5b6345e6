"""Numbers inside a sentence."""

from __future__ import annotations


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 file`, `12,000 files`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
