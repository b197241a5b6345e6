"""Known limitations: what a person may have to act on, each with remedy and reproducing command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from day0.tasks.catalogue import CATALOGUE
from day0.tasks.finding import Finding
from day0.tasks.verdict import Verdict

from ..model import Report
from ..records import VERDICT_RANK
from .repro import filled, is_command, reproduce
from .text import element_id

_EVIDENCE_LINES = 12


@dataclass(frozen=True)
class Limitation:
    """One finding as the page shows it.

    Attributes:
        id: for deep links.
        code: in the catalogue.
        title: the catalogue's few words.
        meaning: the catalogue's explanation.
        verdict: what it makes of the whole.
        severity: as reported.
        targets: those it was found on; empty for the release itself.
        subject: what it is about; empty where the message names it.
        message: one sentence.
        remedy: what to do.
        command: that reproduces it.
        evidence: lines that show it.
        more_evidence: number of lines left out.
        accepted: who accepted it, why and until when; empty where nobody did.
    """

    id: str
    code: str
    title: str
    meaning: str
    verdict: str
    severity: str
    targets: Sequence[str]
    subject: str
    message: str
    remedy: str
    command: str
    evidence: Sequence[str]
    more_evidence: int
    accepted: str


def limitations(report: Report) -> Sequence[Limitation]:
    """All findings, those that weigh most first; the same finding of several targets once."""
    grouped: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for target, finding in _all(report):
        _, targets = grouped.setdefault((finding.id, finding.message), (finding, []))
        if target and target not in targets:
            targets.append(target)
    shown = [_limitation(report, finding, targets) for finding, targets in grouped.values()]
    return sorted(shown, key=lambda item: (-VERDICT_RANK[item.verdict], bool(item.accepted)))


def is_note(item: Limitation) -> bool:
    """Whether nobody has to act on it."""
    return item.verdict == Verdict.PASS


def finding_id(finding: Finding, targets: Sequence[str]) -> str:
    """The id of a finding on the page."""
    return element_id("finding", finding.code, finding.id, *targets[:1])


def _all(report: Report) -> Iterator[tuple[str, Finding]]:
    yield from (("", finding) for finding in report.inventory.findings)
    for result in report.targets:
        yield from ((result.target, finding) for finding in result.findings)


def _limitation(report: Report, finding: Finding, targets: Sequence[str]) -> Limitation:
    entry = CATALOGUE.get(finding.code)
    shown = [line for line in finding.evidence if line.strip() and not is_command(line)]
    # A plan knows no target, though its record stands under each.
    target = targets[0] if targets and not finding.code.startswith("PLN") else ""
    waiver = finding.waiver
    name = finding.subject.name
    rank = f", rank {finding.subject.rank}" if finding.subject.rank is not None else ""
    kind = "" if name.startswith(f"{finding.subject.kind} ") else f"{finding.subject.kind} "
    return Limitation(
        id=finding_id(finding, targets),
        code=finding.code,
        title=entry.title if entry else "",
        meaning=entry.meaning if entry else "",
        verdict=finding.verdict,
        severity=finding.severity,
        targets=targets,
        subject="" if name in finding.message else f"{kind}{name}{rank}",
        message=finding.message,
        remedy=filled(finding.remedy, report, target),
        command=reproduce(report, finding, target),
        evidence=shown[:_EVIDENCE_LINES],
        more_evidence=max(0, len(shown) - _EVIDENCE_LINES),
        accepted=f"accepted by {waiver.owner} until {waiver.expires}: {waiver.reason}" if waiver else "",
    )
