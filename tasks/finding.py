"""A finding: one fact a person may have to act on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Literal

from day0.adapters.base.values import Value, digest

from .catalogue import CATALOGUE
from .verdict import Verdict, worst

Severity = Literal["error", "warning", "info"]


class Subject(Value):
    """What a finding is about.

    Attributes:
        kind: `model`, `file`, `tensor`, `node`, `operator`, `target`, `tier`, `config`, `metric`,
            `prompt`.
        name: e.g. `model.layers.7`.
        rank: of a process, where one is meant.
    """

    kind: str
    name: str
    rank: int | None = None


class Waiver(Value):
    """A recorded, owned, expiring decision to accept a finding.

    Attributes:
        finding: id of the accepted finding.
        owner: who accepts it.
        reason: why.
        expires: last day on which it holds.
    """

    finding: str
    owner: str
    reason: str
    expires: date


class Finding(Value):
    """One fact a person may have to act on.

    Attributes:
        id: digest of code and subject; the same in every run.
        code: e.g. `INV012`, in the catalogue.
        severity: `error`, `warning` or `info`.
        subject: what it is about.
        message: one sentence with the numbers.
        evidence: file, header, config path, log lines, repro command; one item each.
        remedy: what to do.
        waiver: set where the finding is accepted.
    """

    id: str
    code: str
    severity: Severity
    subject: Subject
    message: str
    evidence: Sequence[str] = ()
    remedy: str = ""
    waiver: Waiver | None = None

    @property
    def verdict(self) -> Verdict:
        """What this finding alone makes of the whole; a waived one at most warns."""
        entry = CATALOGUE[self.code]
        implied = {"error": Verdict.FAIL, "warning": Verdict.WARN, "info": Verdict.PASS}[self.severity]
        if entry.undecided is not None:
            implied = Verdict(entry.undecided)
        if self.waiver is not None and implied is not Verdict.PASS:
            return Verdict.WARN
        return implied


def make_finding(
    code: str,
    subject: Subject,
    message: str,
    *,
    evidence: Sequence[str] = (),
    remedy: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding with the catalogue's severity and remedy where none are given.

    Raises:
        KeyError: the code is not in the catalogue.
    """
    entry = CATALOGUE[code]
    return Finding(
        id=digest([code, subject.kind, subject.name, subject.rank])[:12],
        code=code,
        severity=severity or entry.severity,
        subject=subject,
        message=message,
        evidence=tuple(evidence),
        remedy=entry.remedy if remedy is None else remedy,
    )


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict that any finding implies; `pass` where there is none."""
    return worst(finding.verdict for finding in findings)


def apply_waivers(findings: Iterable[Finding], waivers: Iterable[Waiver], today: date) -> tuple[Finding, ...]:
    """The findings, those with a waiver that has not expired marked as waived."""
    valid = {waiver.finding: waiver for waiver in waivers if waiver.expires >= today}
    return tuple(finding.model_copy(update={"waiver": valid.get(finding.id)}) for finding in findings)
