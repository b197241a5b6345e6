"""Fetches the weights of a release after its inventory, in the order in which they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import log_progress
from day0.adapters.base.source import Source
from day0.adapters.sources.staging import Staged, stage_files, stager_of
from day0.reports.words import bytes_text, seconds_text
from day0.tasks.finding import Subject, make_finding, verdict_of
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.staging_order import staging_order

_WRONG = ("E206", "E207", "E211")  # the bytes are not those that the listing vouches for


@dataclass(frozen=True)
class Staging:
    """What staging did.

    Attributes:
        text: one line for a person.
        values: the same for tools: `state` (`staged` or `local`), `folder`, `files`, `bytes` of all files,
            `fetched_bytes` of those that were not here yet, `seconds` and `gb_per_second` of these.
    """

    text: str
    values: dict[str, Any]


def stage_release(model: str, record: InventoryRecord) -> Staging:
    """Stages everything that the release needs to run.

    Args:
        model: as the person named it; the record's revision is what is fetched.
        record: of that model.

    Raises:
        Day0Error: the release cannot be opened any more, or its files cannot be staged.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.sources.resolve import split_revision

    name = split_revision(model)[0]
    if Path(name).exists():
        return _local(name, f"{name} is on this machine")
    release = open_release(name, record.facts.identity.revision)
    source = release.source
    if source is None or stager_of(source) is None:
        return _local(name, f"the files of {name} are on this machine")
    wanted = staging_order(release.checkpoint, record.facts, source.files())
    return _summary(source, stage_files(source, wanted, log_progress))


def with_failure(record: InventoryRecord, error: Day0Error) -> InventoryRecord:
    """The record of a release whose weights could not be staged.

    Wrong content is an error of the release as it is served; a full disk or a broken line decides nothing.
    """
    code = "INV080" if error.code in _WRONG else "INV088"
    subject = Subject(kind="model", name="staging")
    finding = make_finding(
        code, subject, f"staging failed: {error.message}", evidence=[error.code], remedy=error.remedy or None
    )
    findings = (*record.findings, finding)
    return record.model_copy(update={"findings": findings, "verdict": verdict_of(findings)})


def _local(folder: str, why: str) -> Staging:
    values = {"state": "local", "folder": folder, "files": 0, "bytes": 0, "fetched_bytes": 0}
    return Staging(f"nothing to stage: {why}", {**values, "seconds": 0.0, "gb_per_second": None})


def _summary(source: Source, staged: Staged) -> Staging:
    speed = staged.fetched / max(staged.seconds, 1e-9) / 1e9
    came = (
        f"{bytes_text(staged.fetched)} came in {seconds_text(staged.seconds)} ({speed:.2f} GB/s)"
        if staged.fetched
        else "all of it was here already"
    )
    stager = stager_of(source)
    where = f", in {stager.folder}" if stager is not None else ""
    values = {
        "state": "staged",
        "folder": str(stager.folder) if stager is not None else "",
        "files": staged.files,
        "bytes": staged.bytes,
        "fetched_bytes": staged.fetched,
        "seconds": staged.seconds,
        "gb_per_second": speed if staged.fetched else None,
    }
    return Staging(f"staged {staged.files} files with {bytes_text(staged.bytes)}: {came}{where}", values)
