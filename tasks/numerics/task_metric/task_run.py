"""The shipped items put to both sides of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.target import Target
from day0.adapters.models.reference import StreamingReference
from day0.adapters.models.tokenizer import Tokenizer

from ... import thresholds
from ...finding import Finding
from ...outcomes import detail_of
from ...reference_arm import reference_options
from ..record_parts import TaskMetric
from ..walk.case import Case
from .task_items import TASK, items
from .task_metric import by_logits, by_target, measure_task, task_findings


def run_task(
    case: Case, target: Target, tokenizer: Tokenizer | None, folder: Path | None
) -> tuple[TaskMetric, Sequence[Finding]]:
    """What both sides answer; the target by its own loader of whole models.

    Args:
        case: as compared.
        target: that is compared.
        tokenizer: of the release; None where there is none that fits.
        folder: of the release; None where it is not local.
    """
    held = sum(info.bytes for info in case.checkpoint.tensors.values())
    if held > thresholds.NUMERICS_SAY_BYTES:
        return _none("the whole checkpoint would be read many times"), ()
    if "model" not in target.describe().capabilities:
        return _none(f"{target.spec} loads no whole models"), ()
    if folder is None:
        return _none("the release does not lie in a folder of this machine"), ()
    reference = StreamingReference(
        case.skeleton,
        case.checkpoint,
        options=reference_options(case.options),
        keep_bytes=thresholds.NUMERICS_KEEP_BYTES,
    )

    def forward(rows: Sequence[Sequence[int]]) -> Iterable[Tensor]:
        return reference.forward([list(row) for row in rows])

    try:
        target.load(str(folder), dtype=case.dtype)
        metric = measure_task(items(), tokenizer, by_logits(forward), by_target(target))
    except Day0Error as error:
        return _none(detail_of(error)), ()
    return metric, task_findings(metric, str(target.spec))


def _none(reason: str) -> TaskMetric:
    return TaskMetric(name=TASK, reason=reason)
