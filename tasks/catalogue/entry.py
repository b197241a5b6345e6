"""One kind of finding, described once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """A catalogue entry.

    Attributes:
        code: e.g. `INV012`; never given to another meaning.
        title: a few words.
        severity: the usual one.
        meaning: what has been seen when this is reported, in one or two sentences.
        remedy: what to do, in one sentence.
        undecided: `unverified` or `blocked` where the finding says that something could not be decided.
    """

    code: str
    title: str
    severity: Literal["error", "warning", "info"]
    meaning: str
    remedy: str
    undecided: Literal["unverified", "blocked"] | None = None
