"""Findings of the inventory for a terminal: what to act on in full, notes in a line or two each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from day0.reports.words import listed, plural
from day0.tasks.finding import Finding

from .text_layout import wrapped

_MOST_FINDINGS = 10
_MOST_NOTES = 10
_MOST_ALIKE = 3  # of one code, so that a fault that comes often does not hide the others
_NOTE_LINES = 2
_INDENT = " " * 9
_SEVERITY = ("error", "warning", "info")


def finding_lines(findings: Sequence[Finding], width: int) -> Iterator[str]:
    """The worst first; then the notes, one paragraph each, cut where they are long.

    Args:
        findings: of the record.
        width: columns.
    """
    told = sorted(findings, key=lambda finding: _SEVERITY.index(finding.severity))
    acting = [finding for finding in told if finding.severity != "info"]
    notes = told[len(acting) :]
    if not acting:
        yield f"Nothing to act on; {plural(len(notes), 'note')}."
    shown = _few_of_each(acting)
    for finding in shown:
        said = f"{finding.severity:<8} {finding.code} {_about(finding)}{finding.message}"
        yield from wrapped(said, width, "", _INDENT)
        if finding.remedy:
            yield from wrapped(finding.remedy, width, _INDENT, _INDENT)
    left = [finding for finding in acting if finding not in shown]
    if left:
        kinds = listed([f"{number:,} {code}" for code, number in Counter(f.code for f in left).items()], 6)
        yield f"... and {plural(len(left), 'more finding')} ({kinds}); with --json"
    if notes:
        yield ""
    for note in notes[:_MOST_NOTES]:
        yield from wrapped(f"note     {note.code} {note.message}", width, "", _INDENT, _NOTE_LINES)
    more_notes = len(notes) - _MOST_NOTES
    if more_notes > 0:
        yield f"... and {plural(more_notes, 'more note')}; with --json"


def _about(finding: Finding) -> str:
    """What it is about, where the sentence does not name it."""
    return "" if finding.subject.name in finding.message else f"{finding.subject.name}: "


def _few_of_each(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The first findings, of each code no more than a few."""
    met: Counter[str] = Counter()
    shown = []
    for finding in findings:
        met[finding.code] += 1
        if met[finding.code] <= _MOST_ALIKE:
            shown.append(finding)
    return shown[:_MOST_FINDINGS]
