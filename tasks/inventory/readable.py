"""A stranger's names inside a sentence."""

from __future__ import annotations

from day0.adapters.base.wording import plural as plural
from day0.adapters.checkpoints.strict_json import shorten

_LONGEST = 160


def readable(name: str) -> str:
    """The name itself where it is short and printable, else quoted, escaped and cut."""
    return name if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST else shorten(name)
