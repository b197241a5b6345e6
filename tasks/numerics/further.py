"""What may be asked beyond the comparison of nodes: lower precisions, training, a task, bugs in reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from day0.adapters.base.release import Release
from day0.adapters.base.target import Target

from ..finding import Finding
from .prompts.passes import MAIN
from .question import Question
from .record_parts import BugResult, Precision, TaskMetric, Training
from .sequences import Sequences
from .walk.case import Case


@dataclass(frozen=True)
class Further:
    """What came of it; None or empty where it was not asked for.

    Attributes:
        precision: which roles tolerate which precision.
        training: one step on both sides.
        task: the shipped items on both sides.
        reading_bugs: what became of bugs in how the checkpoint is read.
        observer: whether the target gives the same with and without being observed; None: not tried.
        findings: about all of these.
    """

    precision: Precision | None = None
    training: Training | None = None
    task: TaskMetric | None = None
    reading_bugs: Sequence[BugResult] = ()
    observer: bool | None = None
    findings: Sequence[Finding] = ()


def local_folder(release: Release) -> Path | None:
    """Where the release lies on this machine; None where it is remote or a bare config."""
    path = Path(release.model)
    return path.resolve() if path.is_dir() else None


def further_of(question: Question, case: Case, target: Target, given: Sequences) -> Further:
    """Does what the question asks beyond the comparison.

    Args:
        question: see there.
        case: as compared.
        target: that is compared.
        given: sequences, with the tokenizer.
    """
    asked, found = question.asked, Further()
    plain = replace(case, passes=[step for step in case.passes if step.name == MAIN])
    if asked.self_test:
        from .self_test.observer import same_unobserved
        from .trust.reading_bugs import try_reading_bugs

        bugs = try_reading_bugs(question.release, case.skeleton, case.tokens.ids, question.memory)
        found = replace(
            found, reading_bugs=bugs, observer=same_unobserved(plain, target, local_folder(question.release))
        )
    if asked.sweep:
        from .precision.lowerings import precisions
        from .precision.precision import sweep_precision

        found = replace(found, precision=sweep_precision(plain, precisions(asked.sweep)))
    if asked.train:
        from .training.training import train_once

        training, findings = train_once(question.release, plain, target)
        found = replace(found, training=training, findings=(*found.findings, *findings))
    if asked.task:
        from .task_metric.task_run import run_task

        task, findings = run_task(plain, target, given.tokenizer, local_folder(question.release))
        found = replace(found, task=task, findings=(*found.findings, *findings))
    return found
