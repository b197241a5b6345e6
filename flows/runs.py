"""What a run leaves behind: its log file and its report."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from day0.adapters.base.run_store import RunStore
from day0.reports.assemble import assemble
from day0.reports.environment import describe_environment
from day0.reports.index import write_index
from day0.reports.model import Report, Stages
from day0.reports.store import Published, run_folder, write_report
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.job import RecordRef, StageJob, read_ref
from day0.tasks.record import StageRecord

from .record_kinds import record_kind
from .waivers import read_waivers


@contextmanager
def logged(job: StageJob) -> Iterator[None]:
    """Keeps what the logger `day0` says in `runs/RUN/logs/day0.jsonl`, one JSON object a line."""
    store = job.run_store
    if not store.is_local:
        yield
        return
    path = Path(store.path(f"{run_folder(job.run)}/logs/day0.jsonl"))
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_JsonLine())
    logger = logging.getLogger("day0")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        handler.close()


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment,
            "level": record.levelname,
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def write_run(
    job: StageJob,
    inventory: RecordRef,
    plan: RecordRef,
    on_targets: Mapping[str, Sequence[RecordRef]],
    command: str,
) -> tuple[Report, Published]:
    """Puts the records of a run together and writes `runs/RUN/report.json`, `report.html` and the index.

    Args:
        job: of the run.
        inventory: the shared record.
        plan: the shared record.
        on_targets: target -> its records in any order.
        command: that started the run.
    """
    stages = {
        target: Stages.model_validate({ref.stage: _read(job, ref) for ref in (*references, plan)})
        for target, references in on_targets.items()
    }
    every = [inventory, plan, *(ref for references in on_targets.values() for ref in references)]
    report = assemble(
        job.run,
        job.model,
        read_ref(job, InventoryRecord, inventory),
        stages,
        waivers=read_waivers(job.run_store),
        command=command,
        environment=describe_environment(),
        reused={f"{ref.stage} {ref.target}".strip(): ref.reused for ref in every},
    )
    published = write_report(job.run_store, report)
    write_index(job.run_store)
    return report, published


def _read(job: StageJob, reference: RecordRef) -> StageRecord:
    return read_ref(job, record_kind(reference.stage), reference)


def latest_run(store: RunStore, model: str | None = None, target: str | None = None) -> str | None:
    """Id of the newest run with a report, of that model and target where given; None where there is none."""
    from day0.reports.store import list_runs

    for summary in list_runs(store):
        if (model is None or summary.model == model) and (target is None or target in summary.targets):
            return summary.run
    return None
