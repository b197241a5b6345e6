"""The verdict algebra: how findings add up to one word, in one way, over stages and targets."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What may be said of a stage, a target or a run; the whole is the worst of its parts."""

    PASS = "pass"
    WARN = "warn"
    UNVERIFIED = "unverified"
    BLOCKED = "blocked"
    FAIL = "fail"


_ORDER = list(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of `pass < warn < unverified < blocked < fail`; `pass` for nothing at all."""
    return max(verdicts, key=_ORDER.index, default=Verdict.PASS)


def exit_status(verdict: Verdict) -> int:
    """Exit status of a command that made a record: 0 pass or warn, 1 fail, 3 undecided."""
    if verdict is Verdict.FAIL:
        return 1
    return 3 if verdict in (Verdict.UNVERIFIED, Verdict.BLOCKED) else 0
