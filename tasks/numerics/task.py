"""The numerics stage as a task: key, reuse, run."""

from __future__ import annotations

from collections.abc import Sequence

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
from .span import Span


def run(job: StageJob, inventory: RecordRef, coverage: RecordRef, minimal: RecordRef) -> RecordRef:
    """Compares every node on the job's target with the reference, or reads the record from the store.

    The target runs with the ways around that coverage chose; the reference never does. The minimal run only
    has to be over: what it could not run is tried again here, node by node.

    Raises:
        Day0Error: the release cannot be opened, its structure cannot be built, or the target cannot be asked.
    """
    counted = read_ref(job, InventoryRecord, inventory)
    chosen = read_ref(job, CoverageRecord, coverage).facts.chosen
    assert job.fingerprint is not None, "numerics is a stage of a target, which has a fingerprint"
    inputs = {
        "config": counted.facts.identity.config_digest,
        "weights": counted.facts.identity.weights_digest,
        "target": job.target,
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "prompt": job.options.prompt,
        "asked": digest(job.options.numerics.model_dump(exclude={"spread"})),
        "with": str(with_chosen(TargetSpec.parse(job.target), chosen)),
    }
    key = record_key(STAGE, STAGE_VERSION, inputs)
    return reuse_or_run(job, NumericsRecord, STAGE, key, lambda: _measure(job, chosen))


def _measure(job: StageJob, chosen: Sequence[Chosen]) -> NumericsRecord:
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton
    from day0.adapters.targets.open import open_target

    from .measure import measure_numerics
    from .question import Question

    release = open_release(job.model, job.revision)
    how = parse_spread(job.options.numerics.spread)
    spec = with_chosen(TargetSpec.parse(job.target), chosen)
    question = Question(
        release=release,
        skeleton=load_or_build_skeleton(release, job.run_store),
        store=job.run_store,
        prompt=job.options.prompt,
        salt=job.run if job.options.fresh else "",
        progress=log_progress,
        chosen=chosen,
        asked=job.options.numerics,
        spread=how,
        span=_span(job, str(spec)) if how is not None else None,
        memory=job.options.memory_limit,
    )
    with open_target(
        spec,
        timeout=job.options.node_timeout,
        memory_limit=job.options.memory_limit,
        command=job.options.worker_command,
    ) as target:
        return measure_numerics(question, target, target.describe())


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
