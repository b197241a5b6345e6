"""The coverage stage as a task: key, reuse, run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from day0.adapters.base.progress import log_progress

from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from ..record_store import save_record
from .record import STAGE, STAGE_VERSION, CoverageRecord

if TYPE_CHECKING:
    from day0.adapters.base.release import Release
    from day0.adapters.base.skeleton import Skeleton


def run(job: StageJob, inventory: RecordRef) -> RecordRef:
    """Measures the coverage of the job's target, or reads it from the run store.

    The key holds the registry rows that the model needs: whoever probes them has the stage measured again,
    and rows of other models do not matter. Rows learnt in this very run belong to its result, so the record
    is also stored under the key that the next run will ask for.

    Raises:
        Day0Error: the release cannot be opened, or its structure cannot be built.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    counted = read_ref(job, InventoryRecord, inventory)
    release = open_release(job.model, job.revision)
    skeleton = load_or_build_skeleton(release, job.run_store)
    config_digest = counted.facts.identity.config_digest
    key = _key(job, config_digest, skeleton)
    ref = reuse_or_run(job, CoverageRecord, STAGE, key, lambda: _measure(job, release, skeleton))
    after = key if ref.reused else _key(job, config_digest, skeleton)
    if after != key:
        record = read_ref(job, CoverageRecord, ref)
        save_record(job.run_store, record.model_copy(update={"key": after}))
    return ref


def _key(job: StageJob, config_digest: str, skeleton: Skeleton) -> str:
    from day0.adapters.base.target_spec import TargetSpec
    from day0.adapters.registries.files import load_registry

    from .needs import needs_of

    spec = TargetSpec.parse(job.target)
    assert job.fingerprint is not None, "coverage is a stage of a target, which has a fingerprint"
    registry = load_registry(job.run_store, spec.registry_name)
    keys = [need.key for need in needs_of(skeleton, spec)]
    inputs = {
        "config": config_digest,
        "target": job.target,
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "budget": str(job.options.probe_budget),
        "rows": registry.digest_of(keys, job.fingerprint),
    }
    return record_key(STAGE, STAGE_VERSION, inputs)


def _measure(job: StageJob, release: Release, skeleton: Skeleton) -> CoverageRecord:
    from day0.adapters.base.target_spec import TargetSpec
    from day0.adapters.registries.files import add_to_store, load_registry
    from day0.adapters.targets.open import open_target

    from .measure import measure_coverage

    spec = TargetSpec.parse(job.target)
    store = job.run_store
    with open_target(
        spec,
        timeout=job.options.node_timeout,
        memory_limit=job.options.memory_limit,
        command=job.options.worker_command,
    ) as target:
        return measure_coverage(
            skeleton,
            target,
            target.describe(),
            load_registry(store, spec.registry_name),
            budget=job.options.probe_budget,
            progress=log_progress,
            keep=lambda learnt: add_to_store(store, learnt),
            config=release.config,
        )
