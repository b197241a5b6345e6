"""The inventory stage as a task: key, reuse, run."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.progress import log_progress
from day0.adapters.base.release import Release
from day0.adapters.base.values import digest

from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from .earlier import find_verified, find_whole, is_withheld, keep_verified, keep_whole, with_verified
from .record import STAGE, STAGE_VERSION, InventoryRecord


def run(job: StageJob) -> RecordRef:
    """Takes the inventory of the job's release, or reads it from the run store.

    Raises:
        Day0Error: the release cannot be opened.
    """
    from day0.adapters.checkpoints.release import open_release

    from .take import take_inventory

    release = open_release(job.model, job.revision)
    if is_withheld(release) and not job.options.verify:
        held = find_whole(job, release)
        if held is not None:  # its files are these, and what was read of them then cannot be read now
            return RecordRef(stage=STAGE, target=job.target, key=held.key, verdict=held.verdict, reused=True)
    inputs = _inputs(job, release)
    expected = job.options.expected or release.checkpoint.format == "none"
    if expected:
        from .implied import implied_by

        inputs["implied_by"] = implied_by()
    contents = None
    if job.options.verify:
        from .verify import verify_weights  # with numpy, which headers do not need

        contents = verify_weights(release, job.run_store, log_progress)
        inputs["contents"] = contents.digest
    verified = None if job.options.verify else find_verified(job.run_store, release)
    if verified is not None:
        inputs["verified"] = digest(verified.model_dump(mode="json"))

    def compute() -> InventoryRecord:
        record = take_inventory(
            release, expected=expected, layouts=job.options.layouts, progress=log_progress
        )
        if contents is not None:
            from .verification import with_verification

            record = with_verification(record, contents)
        elif verified is not None:
            record = with_verified(record, verified)
        unanswered = [item.subject.name for item in record.findings if item.code == "INV098"]
        if unanswered:
            raise _Unanswered(record, unanswered)
        return record

    whole = not is_withheld(release)
    try:
        key = record_key(STAGE, STAGE_VERSION, inputs)
        taken = reuse_or_run(job, InventoryRecord, STAGE, key, compute)
    except _Unanswered as partial:  # must not be taken for what a later run finds, when all can be read
        record = partial.record
        inputs["unanswered"] = digest(sorted(partial.files))
        key = record_key(STAGE, STAGE_VERSION, inputs)
        taken, whole = reuse_or_run(job, InventoryRecord, STAGE, key, lambda: record), False
    if contents is not None:
        keep_verified(job.run_store, release, read_ref(job, InventoryRecord, taken))
    if whole:
        keep_whole(job, release, taken.key)
    return taken


def _inputs(job: StageJob, release: Release) -> dict[str, str]:
    """What the record depends on, but for what the config implies and the bytes of the weights."""
    files = release.source.files() if release.source else ()
    left_out = release.source.anomalies if release.source else ()
    inputs = {
        "model": job.model,
        "revision": release.revision,
        "structure": release.structure_digest,
        "weights": release.weights_digest,
        "files": digest([[file.path, file.size, file.identity] for file in files]),
        "left_out": digest([[anomaly.code, anomaly.subject, anomaly.evidence] for anomaly in left_out]),
    }
    unread = [item.subject for item in release.checkpoint.anomalies if item.code == "shard_unreadable"]
    if unread:  # a server that is well again gives a record of its own
        inputs["unread"] = digest(sorted(unread))
    if job.options.layouts:
        inputs["layouts"] = digest(list(job.options.layouts))
    return inputs


class _Unanswered(Exception):
    """A record of a release of which small files were not handed out.

    Args:
        record: of what could be read.
        files: that could not.
    """

    def __init__(self, record: InventoryRecord, files: Sequence[str]) -> None:
        super().__init__(f"{len(files)} files")
        self.record, self.files = record, files
