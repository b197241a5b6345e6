"""Records of one run -> one report: waivers applied, verdicts added up, the three questions answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from day0.tasks.finding import Finding, Waiver, apply_waivers, verdict_of
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.record import StageRecord
from day0.tasks.verdict import worst

from .model import Report, Stages, TargetResult
from .questions import three_questions
from .records import stage_records, stage_verdict

Record = TypeVar("Record", bound=StageRecord)


def assemble(
    run: str,
    model: str,
    inventory: InventoryRecord,
    targets: Mapping[str, Stages],
    *,
    waivers: Sequence[Waiver] = (),
    created: datetime | None = None,
    command: str = "",
    environment: Mapping[str, Any] | None = None,
    reused: Mapping[str, bool] | None = None,
) -> Report:
    """The report of one run.

    Args:
        run: id of the run.
        model: as the person named it, without a revision.
        inventory: the shared record.
        targets: target text -> its records; None where a stage did not run, which counts as `unverified`.
        waivers: those that have not expired on the day of `created` are applied.
        created: when the run ended; now where not given.
        command: that started the run.
        environment: versions and host, from `describe_environment`.
        reused: `STAGE TARGET` (`inventory` alone for the shared one) -> whether the record was in the store.
    """
    moment = (created or datetime.now(UTC)).astimezone(UTC)
    shared = _waive(inventory, waivers, moment.date())
    results = [
        _target_result(name, shared, stages, waivers, moment.date()) for name, stages in targets.items()
    ]
    return Report(
        run=run,
        created=moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=model,
        revision=inventory.facts.identity.revision,
        verdict=worst([shared.verdict, *(result.verdict for result in results)]),
        inventory=shared,
        targets=results,
        command=command,
        environment=dict(environment or {}),
        reused=dict(reused or {}),
    )


def _target_result(
    name: str, inventory: InventoryRecord, stages: Stages, waivers: Sequence[Waiver], today: date
) -> TargetResult:
    waived = stages.model_copy(
        update={
            stage: _waive(record, waivers, today)
            for stage, record in stage_records(stages).items()
            if record is not None
        }
    )
    records = stage_records(waived)
    return TargetResult(
        target=name,
        verdict=worst(stage_verdict(record) for record in records.values()),
        questions=three_questions(inventory, waived),
        stages=waived,
        findings=_all_findings(record for record in records.values() if record is not None),
    )


def _all_findings(records: Iterable[StageRecord]) -> Sequence[Finding]:
    return [finding for record in records for finding in record.findings]


def _waive(record: Record, waivers: Sequence[Waiver], today: date) -> Record:
    """The record with its waived findings marked; its verdict follows only where a waiver applied."""
    findings = apply_waivers(record.findings, waivers, today)
    if not any(finding.waiver for finding in findings):
        return record
    return record.model_copy(update={"findings": findings, "verdict": verdict_of(findings)})
