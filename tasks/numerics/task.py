"""The numerics stage as a task: key, reuse, run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from day0.adapters.base.progress import log_progress
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.adapters.base.workaround import Chosen, with_chosen

from ..coverage.record import CoverageRecord
from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from ..spreading import parse_spread
from .record import STAGE, STAGE_VERSION, NumericsRecord
from .spread.span import Span

if TYPE_CHECKING:
    from day0.adapters.base.release import Release
    from day0.adapters.base.target import Target

    from .bundles.bundle import Bundle


def run(
    job: StageJob, inventory: RecordRef, coverage: RecordRef | None = None, minimal: RecordRef | None = None
) -> RecordRef:
    """Compares every node on the job's target with the reference, or reads the record from the store.

    The target runs with the ways around that coverage chose; the reference never does. The minimal run only
    has to be over: what it could not run is tried again here, node by node. Neither is needed where a bundle
    stands for the reference or a server is the target.

    Raises:
        Day0Error: the release cannot be opened, its structure cannot be built, or the target cannot be asked.
    """
    counted = read_ref(job, InventoryRecord, inventory)
    chosen = read_ref(job, CoverageRecord, coverage).facts.chosen if coverage is not None else ()
    assert job.fingerprint is not None, "numerics is a stage of a target, which has a fingerprint"
    inputs = {
        "config": counted.facts.identity.config_digest,
        "weights": counted.facts.identity.weights_digest,
        "target": job.target,
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "prompt": job.options.prompt,
        "memory": str(job.options.memory_limit),
        "asked": digest(job.options.numerics.model_dump(exclude={"spread"})),
        "files": digest([_content(job.options.numerics.samples), _content(job.options.numerics.reference)]),
        "with": str(with_chosen(TargetSpec.parse(job.target), chosen)),
    }
    key = record_key(STAGE, STAGE_VERSION, inputs)
    return reuse_or_run(job, NumericsRecord, STAGE, key, lambda: _measure(job, chosen))


def check_bundle(job: StageJob, target: str) -> None:
    """Refuses a bundle that was named and cannot stand for the reference, before anything else is done.

    Raises:
        InputError: E191 to E193, E196, E197, see `opened_bundle`.
    """
    if job.options.numerics.reference:
        from day0.adapters.checkpoints.release import open_release

        with _bundle(job, target, open_release(job.model, job.revision)):
            pass


def _bundle(job: StageJob, target: str, release: Release) -> Bundle:
    from .bundles.bundle_task import opened_bundle

    reference, spec = job.options.numerics.reference, TargetSpec.parse(target)
    return opened_bundle(reference, release, spec, job.options.prompt)


def _content(path: str) -> str:
    """Digest of a file that was named; empty where none was."""
    if not path:
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _measure(job: StageJob, chosen: Sequence[Chosen]) -> NumericsRecord:
    from day0.adapters.checkpoints.release import open_release

    release = open_release(job.model, job.revision)
    if not job.options.numerics.reference:
        return _compared(job, chosen, release, None)
    with _bundle(job, job.target, release) as bundle:
        return _compared(job, chosen, release, bundle)


def _compared(
    job: StageJob, chosen: Sequence[Chosen], release: Release, bundle: Bundle | None
) -> NumericsRecord:
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    from .measure import measure_numerics
    from .question import Question

    how = parse_spread(job.options.numerics.spread)
    spec = with_chosen(TargetSpec.parse(job.target), chosen)
    question = Question(
        release=release,
        skeleton=bundle.head.skeleton if bundle else load_or_build_skeleton(release, job.run_store),
        store=job.run_store,
        prompt=job.options.prompt,
        salt=job.run if job.options.fresh else "",
        progress=log_progress,
        chosen=chosen,
        bundle=bundle,
        open_wide=lambda: _opened(job, spec.model_copy(update={"dtype": "fp32"})),
        asked=job.options.numerics,
        spread=how,
        span=_span(job, str(spec)) if how is not None else None,
        memory=job.options.memory_limit,
    )
    with _opened(job, spec) as target:
        return measure_numerics(question, target, target.describe())


def _opened(job: StageJob, spec: TargetSpec) -> AbstractContextManager[Target]:
    from day0.adapters.targets.open import open_target

    return open_target(
        spec,
        timeout=job.options.node_timeout,
        memory_limit=job.options.memory_limit,
        command=job.options.worker_command,
    )


def _span(job: StageJob, target: str) -> Span:
    """What each worker among which nodes are spread is given."""
    return Span(
        model=job.model,
        revision=job.revision or "",
        store=job.store,
        target=target,
        timeout=job.options.node_timeout,
        memory=job.options.memory_limit,
        command=job.options.worker_command,
    )
