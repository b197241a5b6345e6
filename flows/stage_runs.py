"""One stage on one target, without Prefect: the device is held, every error after inventory is a record."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from importlib import import_module

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Value, digest
from day0.tasks.job import RecordRef, StageJob
from day0.tasks.prevention import Prevention, prevention_of, unforeseen
from day0.tasks.record_store import save_record

from .device_lock import device

_LOGGER = logging.getLogger("day0.stage")


class TargetJob(Value):
    """What the stages of one target are given.

    Attributes:
        job: with the target and, where it could be asked, its fingerprint.
        prevented: why the target could not be asked; then none of its stages runs.
    """

    job: StageJob
    prevented: Prevention | None = None


def stage_function(stage: str) -> Callable[..., RecordRef]:
    """`run` of the stage's task module, imported when it is first needed."""
    function: Callable[..., RecordRef] = import_module(f"day0.tasks.{stage}.task").run
    return function


def describe_target(job: StageJob, target: str) -> TargetJob:
    """What a target is, asked through its worker or kept; an error there blocks this target's stages only."""
    from day0.adapters.targets.kept_description import described
    from day0.adapters.targets.open import open_target

    options = job.options
    on_target = job.model_copy(update={"target": target})

    def ask() -> TargetDescription:
        with open_target(
            TargetSpec.parse(target),
            timeout=options.node_timeout,
            memory_limit=options.memory_limit,
            command=options.worker_command,
        ) as opened:
            return opened.describe()

    try:
        description = described(
            TargetSpec.parse(target),
            job.run_store,
            ask,
            command=options.worker_command,
            fresh=options.fresh,
        )
    except Day0Error as error:
        _LOGGER.warning("%s cannot be asked: %s", target, error)
        return TargetJob(job=on_target, prevented=prevention_of(error, asking=True))
    known = {"fingerprint": description.fingerprint, "description": description}
    return TargetJob(job=on_target.model_copy(update=known))


def take_inventory(job: StageJob) -> RecordRef:
    """The inventory, without which there is no record: its errors are the run's."""
    reference = stage_function("inventory")(job)
    _say(reference)
    return reference


def run_stage(stage: str, on_target: TargetJob, *upstream: RecordRef) -> RecordRef:
    """Runs a stage; whatever happens, a record comes of it.

    Args:
        stage: any but inventory.
        on_target: the job; plan's has no target.
        upstream: references to the records that the stage is given.
    """
    job, why = on_target.job, on_target.prevented
    if why is None:
        try:
            if job.target:
                with device(TargetSpec.parse(job.target).device):
                    reference = stage_function(stage)(job, *upstream)
            else:
                reference = stage_function(stage)(job, *upstream)
            _say(reference)
            return reference
        except Day0Error as error:
            why = prevention_of(error)
        except Exception as error:
            # A fault of ours in one stage must not cost the others; it is recorded as such.
            why = unforeseen(error, _keep_traceback(stage, job))
    from day0.tasks.prevented import prevented_record  # knows the records of all stages

    record = prevented_record(stage, job, why)
    # Under this run's own key: the next run tries again.
    key = digest({"stage": stage, "target": job.target, "run": job.run, "prevented": why.message})
    record = record.model_copy(update={"key": key, "target": job.target})
    save_record(job.run_store, record)
    reference = RecordRef(stage=stage, target=job.target, key=key, verdict=record.verdict, reused=False)
    _say(reference, why.message)
    return reference


def _say(reference: RecordRef, why: str = "") -> None:
    """The one line a stage leaves in the log."""
    on = f" on {reference.target}" if reference.target else ""
    how = "reused" if reference.reused else "done"
    _LOGGER.info("%s%s: %s, %s%s", reference.stage, on, reference.verdict, how, f" ({why})" if why else "")


def _keep_traceback(stage: str, job: StageJob) -> str:
    slug = f"-{TargetSpec.parse(job.target).slug}" if job.target else ""
    return job.run_store.write(
        f"runs/{job.run}/logs/{stage}{slug}-error.txt", traceback.format_exc().encode()
    )
