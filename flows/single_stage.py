"""One stage with those that it builds on, in order, in this process, without Prefect."""

from __future__ import annotations

from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.job import RecordRef, RunOptions, read_ref
from day0.tasks.record import StageRecord

from .record_kinds import record_kind
from .run_start import start_job
from .stage_runs import TargetJob, describe_target, run_stage, take_inventory

_GIVEN = {
    "plan": (),
    "coverage": (),
    "minimal": ("coverage",),
    "numerics": ("coverage", "minimal"),
    "scale": ("minimal", "numerics"),
}
"""Stage -> the records it is given besides the inventory, as `flows/adapt.py` passes them."""


def run_up_to(
    stage: str, model: str, revision: str | None, target: str | None, store: str, options: RunOptions
) -> StageRecord:
    """The record of a stage; what it builds on is read from the run store where it is there.

    Args:
        stage: out of `STAGES`.
        model: hub id, folder, or path of a config; `NAME@REV` pins.
        revision: commit, tag or branch.
        target: None for inventory and plan.
        store: folder or fsspec URL.
        options: what changes the results.

    Raises:
        Day0Error: the model or the target cannot be used, or inventory cannot read anything of it.
    """
    alone = stage == "inventory"  # nothing else has anything to say of a release that is merely listed
    job = start_job(model, revision, [target] if target else [], store, options, listing=alone)
    if target and options.numerics.reference:
        from day0.tasks.numerics.task import check_bundle

        check_bundle(job, target)
    inventory = take_inventory(job)
    if stage == "inventory":
        return read_ref(job, record_kind(stage), inventory)
    on_target = describe_target(job, target) if target else TargetJob(job=job)
    done: dict[str, RecordRef] = {}

    def run(name: str) -> RecordRef:
        if name not in done:
            given = () if name == "numerics" and _alone(target, options) else _GIVEN[name]
            done[name] = run_stage(name, on_target, inventory, *(run(other) for other in given))
        return done[name]

    return read_ref(job, record_kind(stage), run(stage))


def _alone(target: str | None, options: RunOptions) -> bool:
    """Whether numerics needs no stage before it: it is given the reference's outputs, or asks a server."""
    return bool(options.numerics.reference) or (
        target is not None and TargetSpec.parse(target).stack == "endpoint"
    )
