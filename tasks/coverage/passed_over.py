"""Findings about what was brought along and cannot be used: it is passed over, and the rest is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from day0.adapters.workarounds.registry import unusable

from ..finding import Finding, Subject, make_finding
from .record import Gap

if TYPE_CHECKING:
    from .question import Question

UNREAD = "COV023"


def findings_of_passed_over(question: Question, gaps: Sequence[Gap]) -> Iterator[Finding]:
    """Files of rows that cannot be read whole; where there are gaps, also ways around that cannot be used.

    Args:
        question: of the stage.
        gaps: that were found.
    """
    for unread in (*question.registry.unread, *question.kind_rows.unread):
        # Without how many rows of it, so that the finding stays the same one.
        file = unread.partition(" cannot be read")[0].partition("the ")[2]
        yield _finding(str(question.spec), file, unread, "E138")
    # Only then are they asked for, and only then is somebody else's code imported.
    if gaps:
        calls = [call.model_dump(mode="json") for call in question.capture.calls]
        lacking = {gap.op for gap in gaps}
        needed = [call for call in calls if call["op"] in lacking]
        for name, why in sorted(unusable(needed, question.config).items()):
            yield _finding(str(question.spec), f"way around {name}", why, "E177")


def _finding(target: str, name: str, why: str, code: str) -> Finding:
    return make_finding(
        UNREAD,
        Subject(kind="target", name=f"{target}: {name}"),
        f"{why[:1].upper()}{why[1:]} [{code}]; it was passed over.",
        evidence=[why],
    )
