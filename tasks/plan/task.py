"""The plan stage as a task: key, reuse, run."""

from __future__ import annotations

from ..inventory.record import InventoryRecord
from ..job import RecordRef, StageJob, read_ref, reuse_or_run
from ..record import record_key
from .record import STAGE, STAGE_VERSION, PlanRecord


def run(job: StageJob, inventory: RecordRef) -> RecordRef:
    """Plans for the job's release, or reads the plan from the store; the inventory's facts are the key."""
    counted = read_ref(job, InventoryRecord, inventory)
    key = record_key(STAGE, STAGE_VERSION, {"inventory": counted.facts_digest})

    def compute() -> PlanRecord:
        from .make import make_plan

        return make_plan(counted)

    return reuse_or_run(job, PlanRecord, STAGE, key, compute)
