"""What a target's records have in common: order of the stages, verdicts, fingerprint, weight of findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from day0.adapters.base.values import Fingerprint
from day0.tasks.finding import Finding
from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict

from .model import Stages, TargetResult

VERDICT_RANK: Mapping[str, int] = {verdict: rank for rank, verdict in enumerate(Verdict)}


def stage_records(stages: Stages) -> Mapping[str, StageRecord | None]:
    """Stage -> record, in the order of the stages; None where a stage did not run."""
    return {
        "coverage": stages.coverage,
        "minimal": stages.minimal,
        "numerics": stages.numerics,
        "plan": stages.plan,
        "scale": stages.scale,
    }


def stage_verdict(record: StageRecord | None) -> Verdict:
    """The record's verdict; `unverified` where the stage did not run."""
    return Verdict.UNVERIFIED if record is None else record.verdict


def stages_with(result: TargetResult, verdict: Verdict) -> Sequence[str]:
    """The stages of a target that have this verdict."""
    return [name for name, record in stage_records(result.stages).items() if stage_verdict(record) is verdict]


def fingerprint_of(result: TargetResult) -> Fingerprint | None:
    """What the target was made of, from the first record that knows; None where it could not be asked."""
    for record in stage_records(result.stages).values():
        fingerprint = getattr(record.facts, "fingerprint", None) if record is not None else None
        if isinstance(fingerprint, Fingerprint) and fingerprint.family:
            return fingerprint
    return None


def leading_message(findings: Iterable[Finding]) -> str:
    """The message of the finding that weighs most; empty where none asks for anything."""
    first = next(iter(ranked(findings)), None)
    return first.message if first is not None and first.verdict is not Verdict.PASS else ""


def ranked(findings: Iterable[Finding]) -> Sequence[Finding]:
    """The findings, those that weigh most first, waived ones after the others, else in the order found."""
    return sorted(findings, key=lambda finding: (-VERDICT_RANK[finding.verdict], finding.waiver is not None))
