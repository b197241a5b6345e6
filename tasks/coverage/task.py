"""The coverage stage as a task: key, reuse, run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.operator_capture import Capture
from day0.adapters.base.progress import log_progress
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.adapters.workarounds.registry import installed

from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from ..record_store import save_record
from .kind_rows import KindRows, add_kinds, load_kinds
from .needs import needs_of, request_of
from .passed_over import UNREAD
from .record import STAGE, STAGE_VERSION, CoverageRecord

if TYPE_CHECKING:
    from day0.adapters.base.release import Release
    from day0.adapters.registries.registry import Registry

    from .knowledge import OpenTarget
    from .low_precision import Stored


def run(job: StageJob, inventory: RecordRef) -> RecordRef:
    """Measures the coverage of the job's target, or reads it from the run store.

    The key holds the capture, the ways around that are installed, and the rows of operators and kinds that
    the model needs: whoever probes them has the stage measured again, and rows of other models do not matter.
    Rows learnt in this very run belong to its result, so the record is also stored under the key that the
    next run will ask for, unless the time was used up: then the next run goes on; or rows could not be read:
    then they can by now. A model that cannot be built leaves a record too, with all that config and headers
    say.

    Raises:
        Day0Error: the release cannot be opened, or the target cannot be asked.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.captures import load_or_capture

    counted = read_ref(job, InventoryRecord, inventory)
    release = open_release(job.model, job.revision)
    spec = TargetSpec.parse(job.target)
    began = time.monotonic()
    capture = load_or_capture(release, job.run_store, request_of(spec), progress=log_progress)
    seconds = time.monotonic() - began
    key = partial(_key, job, counted, release, capture)
    before = key()
    compute = partial(_measure, job, counted, release, capture, seconds)
    ref = reuse_or_run(job, CoverageRecord, STAGE, before, compute)
    after = before if ref.reused else key()
    if after != before:
        record = read_ref(job, CoverageRecord, ref)
        if not record.observations.spent and not any(one.code == UNREAD for one in record.findings):
            save_record(job.run_store, record.model_copy(update={"key": after}))
    return ref


def _stored(inventory: InventoryRecord) -> Sequence[Stored]:
    """Patterns of the tensors; where there are none yet, those that the config implies."""
    return inventory.facts.patterns or inventory.facts.implied.patterns


def _registry(job: StageJob) -> Registry:
    from day0.adapters.registries.files import load_registry

    return load_registry(job.run_store, TargetSpec.parse(job.target).registry_name)


def _key(job: StageJob, inventory: InventoryRecord, release: Release, capture: Capture) -> str:
    assert job.fingerprint is not None, "coverage is a stage of a target, which has a fingerprint"
    spec, registry = TargetSpec.parse(job.target), _registry(job)
    keys = [need.key for need in needs_of(capture, spec)]
    inputs = {
        "config": inventory.facts.identity.config_digest,
        "capture": digest(capture.model_dump(mode="json")),
        "quantization": digest(inventory.facts.quantization.model_dump(mode="json")),
        "stored": digest([[one.pattern, one.role, one.dtype] for one in _stored(inventory)]),
        "target": job.target,
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "budget": str(job.options.probe_budget),
        "rows": registry.digest_of(keys, job.fingerprint),
        "unread": digest([registry.unread, _known_kinds(job, spec).unread]),
        "kinds": _kinds_digest(job, release, capture),
        "ways": digest(installed()),
    }
    return record_key(STAGE, STAGE_VERSION, inputs)


def _known_kinds(job: StageJob, spec: TargetSpec) -> KindRows:
    """What earlier runs have learnt of kinds; nothing for a job that is to try everything again."""
    name = spec.registry_name
    return KindRows(name) if job.options.fresh else load_kinds(job.run_store, name)


def _kinds_digest(job: StageJob, release: Release, capture: Capture) -> str:
    """Changes whenever what is known of the model's kinds does; empty where nothing of any is."""
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    spec = TargetSpec.parse(job.target)
    rows = load_kinds(job.run_store, spec.registry_name)
    if not rows.rows or capture.unbuilt:
        return ""
    try:
        skeleton = load_or_build_skeleton(release, job.run_store)
    except Day0Error:  # the stage itself finds out, and says so
        return ""
    assert job.fingerprint is not None, "coverage is a stage of a target, which has a fingerprint"
    return rows.digest_of(skeleton.kinds, spec.dtype or skeleton.dtype, job.fingerprint)


def _measure(
    job: StageJob, inventory: InventoryRecord, release: Release, capture: Capture, seconds: float
) -> CoverageRecord:
    from day0.adapters.models.captures import load_or_capture_all
    from day0.adapters.models.skeleton_store import load_or_build_skeleton
    from day0.adapters.registries.files import add_to_store, stored_registry

    from .measure import measure_coverage
    from .question import Question

    spec, store = TargetSpec.parse(job.target), job.run_store
    open_one = opener(job)
    if job.description is None:
        with open_one(spec) as target:
            description = target.describe()
    else:
        description = job.description
    record = measure_coverage(
        Question(
            spec=spec,
            description=description,
            capture=capture,
            registry=_registry(job),
            config=release.config,
            config_digest=inventory.facts.identity.config_digest,
            open_target=open_one,
            capture_all=lambda requests: load_or_capture_all(release, store, requests, progress=log_progress),
            budget=job.options.probe_budget,
            keep=lambda learnt: add_to_store(store, learnt),
            progress=log_progress,
            skeleton=lambda: load_or_build_skeleton(release, store),
            scheme=inventory.facts.quantization.scheme,
            group=inventory.facts.quantization.group,
            stored=_stored(inventory),
            seconds=seconds,
            known_rows=None if job.options.fresh else lambda name: stored_registry(store, name),
            kind_rows=_known_kinds(job, spec),
            keep_kinds=lambda learnt: add_kinds(store, learnt),
            memory=job.options.memory_limit,
        )
    )
    return record.model_copy(update={"files": _written(job, record)})


def _written(job: StageJob, record: CoverageRecord) -> dict[str, str]:
    """Puts scripts and texts of the gaps into the run store, each under the digest of what it says."""
    from .gaps import side_files

    files = {}
    for name, (file, text) in side_files(record.facts.gaps).items():
        files[name] = f"gaps/{digest(text)[:12]}/{file}"
        job.run_store.write(files[name], text.encode())
    return files


def opener(job: StageJob) -> OpenTarget:
    """Opens targets as the job's options ask."""
    from day0.adapters.targets.open import open_target

    return partial(
        open_target,
        timeout=job.options.node_timeout,
        memory_limit=job.options.memory_limit,
        command=job.options.worker_command,
    )
