"""The machine-readable shape of a record and of a run (`--json`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict

from .strict_json import plain

if TYPE_CHECKING:
    from .model import Report, TargetResult


def record_json(record: StageRecord) -> dict[str, Any]:
    """One stage's record, its facts at the top: `totals`, `blocks`, ... beside `verdict` and `findings`."""
    return {
        "stage": record.stage,
        "target": record.target,
        "verdict": record.verdict.value,
        "findings": plain(record.findings),
        **plain(record.facts),
        **_measured_at_the_top(record),
        "observations": plain(record.observations),
        "sources": dict(record.sources),
        "key": record.key,
    }


def _measured_at_the_top(record: StageRecord) -> dict[str, Any]:
    """Peak memory beside the facts that it belongs to, where a stage measured it: bytes."""
    peak = getattr(record.observations, "peak_memory", 0)
    return {"peak_memory": peak} if peak else {}


def as_json(report: Report) -> Mapping[str, Any]:
    """The run: `verdict`, `inventory`, `targets[].{target,verdict,questions,stages,findings}`.

    With exactly one target its `stages` also stand at the top, and `findings` holds those of the release and
    of the target.
    """
    targets = [_target_json(result) for result in report.targets]
    shape: dict[str, Any] = {
        "report_schema": report.report_schema,
        "run": report.run,
        "created": report.created,
        "model": report.model,
        "revision": report.revision,
        "verdict": report.verdict.value,
        "inventory": record_json(report.inventory),
        "targets": targets,
        "command": report.command,
        "environment": plain(report.environment),
        "reused": dict(report.reused),
    }
    if len(targets) == 1:
        shape["stages"] = targets[0]["stages"]
        shape["findings"] = [*shape["inventory"]["findings"], *targets[0]["findings"]]
    return shape


def _target_json(result: TargetResult) -> dict[str, Any]:
    from .records import stage_records  # with the records of all stages, which one stage's verb need not load

    absent = {"verdict": Verdict.UNVERIFIED.value, "findings": [], "ran": False}
    return {
        "target": result.target,
        "verdict": result.verdict.value,
        "questions": plain(result.questions),
        "stages": {
            stage: dict(absent) if record is None else {**record_json(record), "ran": True}
            for stage, record in stage_records(result.stages).items()
        },
        "findings": plain(result.findings),
    }
