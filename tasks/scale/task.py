"""The scale stage as a task: key, reuse, run."""

from __future__ import annotations

from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..minimal.record import MinimalRecord
from ..record import record_key
from ..verdict import Verdict
from .record import STAGE, STAGE_VERSION, ScaleRecord


def run(job: StageJob, inventory: RecordRef, minimal: RecordRef, numerics: RecordRef) -> RecordRef:
    """Climbs the tiers of health, or reads how far they went from the run store.

    Args:
        job: which release on which target.
        inventory: gives all shapes.
        minimal: names the cut-down release, and the ways around with which it ran.
        numerics: a failed one holds back the model tier.

    Raises:
        Day0Error: the target cannot be opened or does not describe itself.
    """
    assert job.fingerprint is not None, "scale needs a target's fingerprint"
    known = read_ref(job, InventoryRecord, inventory)
    numerics_failed = numerics.verdict is Verdict.FAIL
    inputs = {
        "config": known.facts.identity.config_digest,
        "structure": known.facts.identity.structure_digest,
        "minimal": minimal.key,  # covers the weights that the cut-down release holds, and no others are read
        "numerics_failed": str(numerics_failed),
        "family": job.fingerprint.family,
        "exact": job.fingerprint.digest,
        "target": job.target,
        "memory_limit": str(job.options.memory_limit),
    }
    key = record_key(STAGE, STAGE_VERSION, inputs)
    return reuse_or_run(job, ScaleRecord, STAGE, key, lambda: _compute(job, known, minimal, numerics_failed))


def _compute(job: StageJob, known: InventoryRecord, minimal: RecordRef, numerics_failed: bool) -> ScaleRecord:
    from day0.adapters.base.progress import log_progress
    from day0.adapters.base.target_spec import TargetSpec
    from day0.adapters.base.workaround import with_chosen
    from day0.adapters.targets.open import open_target

    from .health import check_health

    options, store = job.options, job.run_store
    cut = read_ref(job, MinimalRecord, minimal)
    folder = cut.files.get("cut")
    with open_target(
        with_chosen(TargetSpec.parse(job.target), cut.facts.chosen),
        timeout=options.node_timeout,
        memory_limit=options.memory_limit,
        command=options.worker_command,
        log=job.log_path(STAGE),
    ) as target:
        return check_health(
            known,
            target,
            cut_folder=store.path(folder) if folder else None,
            cut=cut.facts.cut,
            numerics_failed=numerics_failed,
            memory_limit=options.memory_limit,
            progress=log_progress,
        )
