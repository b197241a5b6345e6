"""The start and the end of a run: one pinned revision for everything, an id, a log file, and the report."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from day0.adapters.base.errors import AccessError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.reports.assemble import assemble
from day0.reports.environment import describe_environment
from day0.reports.index import write_index
from day0.reports.model import Report, Stages
from day0.reports.store import Published, run_folder, write_report
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.job import RecordRef, RunOptions, StageJob, read_ref
from day0.tasks.record import StageRecord

from .record_kinds import RECORD_KINDS
from .waivers import read_waivers


def new_run_id(model: str, targets: Sequence[str]) -> str:
    """UTC time and a short digest: sorts by time, and two runs of one second differ."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{digest([model, list(targets), os.getpid(), time.time_ns()])[:8]}"


def pin_model(model: str, revision: str | None, *, listing: bool = False) -> tuple[str, str | None]:
    """The model's name without a revision, and the commit that all stages will read.

    A folder or a bare config has no commit; its stages see its files' identities. Whether there is a config
    that can be read is found out here, before anything heavy starts.

    Args:
        model: as a person named it.
        revision: commit, tag or branch.
        listing: whether a release that is listed is enough even where its files are withheld.

    Raises:
        InputError: the model as named cannot be used.
    """
    from day0.adapters.checkpoints.release import read_config
    from day0.adapters.sources.resolve import open_source, split_revision

    name, named = split_revision(model, revision)
    if Path(name).is_file():
        return name, None
    source = open_source(name, named)
    with suppress(AccessError) if listing else nullcontext():
        read_config(source)
    return name, None if Path(name).is_dir() else source.revision


def check_targets(targets: Sequence[str]) -> None:
    """Refuses what no worker has to be started for.

    Raises:
        InputError: E110, it does not follow the grammar; E111, an unknown stack.
    """
    from day0.adapters.targets.registry import find_stack

    for target in targets:
        find_stack(TargetSpec.parse(target).stack)


def start_job(
    model: str,
    revision: str | None,
    targets: Sequence[str],
    store: str,
    options: RunOptions,
    *,
    listing: bool = False,
) -> StageJob:
    """The job of a new run, before any target is asked.

    Args:
        model: as a person named it.
        revision: commit, tag or branch.
        targets: their texts.
        store: root of the run store.
        options: settings of the run.
        listing: see `pin_model`.

    Raises:
        InputError: the model as named cannot be used, or a target is unknown.
    """
    check_targets(targets)
    name, commit = pin_model(model, revision, listing=listing)
    return StageJob(run=new_run_id(name, targets), store=store, model=name, revision=commit, options=options)


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
    return read_ref(job, RECORD_KINDS[reference.stage], reference)


def latest_run(store: RunStore, model: str | None = None, target: str | None = None) -> str | None:
    """Id of the newest run with a report, of that model and target where given; None where there is none."""
    from day0.reports.store import list_runs

    for summary in list_runs(store):
        if (model is None or summary.model == model) and (target is None or target in summary.targets):
            return summary.run
    return None
