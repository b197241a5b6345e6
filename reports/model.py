"""report.json: one run as data; the page and every comparison are pure functions of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.values import Value
from day0.tasks.coverage.record import CoverageRecord
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.minimal.record import MinimalRecord
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.plan.record import PlanRecord
from day0.tasks.scale.record import ScaleRecord
from day0.tasks.verdict import Verdict

REPORT_SCHEMA = 1


class Stages(Value):
    """The records of one target; None where a stage did not run."""

    coverage: CoverageRecord | None = None
    minimal: MinimalRecord | None = None
    numerics: NumericsRecord | None = None
    plan: PlanRecord | None = None
    scale: ScaleRecord | None = None


class Question(Value):
    """One of the three questions with its answer and one sentence of evidence.

    Attributes:
        id: `weights`, `graph` or `results`.
        question: as a person asks it.
        answer: `yes`, `no`, `partly` or `unverified`.
        evidence: one sentence.
    """

    id: str
    question: str
    answer: str
    evidence: str


class TargetResult(Value):
    """One target's part of the run."""

    target: str
    verdict: Verdict
    questions: Sequence[Question]
    stages: Stages
    findings: Sequence[Finding]


class Report(Value):
    """One run of `adapt`.

    Attributes:
        report_schema: version of this shape.
        run: id, also the folder's name.
        created: UTC, ISO 8601.
        model: as named.
        revision: pinned.
        verdict: worst over inventory and targets.
        inventory: the shared record.
        targets: one a target.
        command: that started the run.
        environment: versions and host of the process that ran the flow.
        reused: stage and target -> whether the record came from the store.
    """

    report_schema: int = REPORT_SCHEMA
    run: str
    created: str
    model: str
    revision: str
    verdict: Verdict
    inventory: InventoryRecord
    targets: Sequence[TargetResult]
    command: str = ""
    environment: Mapping[str, Any] = {}
    reused: Mapping[str, bool] = {}
