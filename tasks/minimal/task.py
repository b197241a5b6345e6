"""The minimal stage as a task: key, reuse, run."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import log_progress
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.adapters.base.workaround import Chosen, with_chosen

from ..coverage.record import CoverageRecord
from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from .record import STAGE, STAGE_VERSION, MinimalRecord


def run(job: StageJob, inventory: RecordRef, coverage: RecordRef) -> RecordRef:
    """Runs the first layers of each kind and the target's loader, or reads the record from the run store.

    It runs with the ways around that coverage chose. An operator for which it found none is met again here,
    with the real weights.

    Raises:
        Day0Error: the release cannot be opened, its structure cannot be built, or the target cannot be asked.
    """
    counted = read_ref(job, InventoryRecord, inventory)
    chosen = read_ref(job, CoverageRecord, coverage).facts.chosen
    assert job.fingerprint is not None, "minimal is a stage of a target, which has a fingerprint"
    inputs = {
        "config": counted.facts.identity.config_digest,
        "weights": _weights(job) or counted.facts.identity.weights_digest,
        "target": job.target,
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "memory": str(job.options.memory_limit),
        "with": str(with_chosen(TargetSpec.parse(job.target), chosen)),
    }
    key = record_key(STAGE, STAGE_VERSION, inputs)
    return reuse_or_run(job, MinimalRecord, STAGE, key, lambda: _measure(job, chosen))


def _weights(job: StageJob) -> str:
    """Digest over the tensors that the cut may hold; empty where the structure cannot be told.

    So a changed byte in a shard of a later layer leaves the record as it is.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    from ..cut import tensors_read

    try:
        release = open_release(job.model, job.revision)
        names = tensors_read(release, load_or_build_skeleton(release, job.run_store))
    except Day0Error:  # it is met again by the run itself, which says so
        return ""
    return digest({name: release.checkpoint.identity(name) for name in sorted(names)})


def _measure(job: StageJob, chosen: Sequence[Chosen]) -> MinimalRecord:
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton
    from day0.adapters.targets.open import open_target

    from .measure import Question, measure_minimal

    release = open_release(job.model, job.revision)
    question = Question(
        release=release,
        skeleton=load_or_build_skeleton(release, job.run_store),
        store=job.run_store,
        memory_limit=job.options.memory_limit,
        progress=log_progress,
        chosen=chosen,
    )
    with open_target(
        with_chosen(TargetSpec.parse(job.target), chosen),
        timeout=job.options.node_timeout,
        memory_limit=job.options.memory_limit,
        command=job.options.worker_command,
    ) as target:
        return measure_minimal(question, target, target.describe())
