"""The methodology as a flow: what each stage is given, what it hands on, what happens when one fails.

    model ─ pin ─┬─ inventory ─┬─ plan ──────────────────────────────────────────┬─ report
                 │             │                                                 │
                 └─ describe ──┴─ coverage ── minimal ── numerics ── scale ──────┘
                    (per target)

One flow a model, tasks inside it. A task is given names and references, never tensors, and hands on a
reference to the record it stored; so any task runner (threads, Dask) carries it, and reuse is by the
records' own keys.

What a failure stops:

- the model cannot be used, or inventory cannot read anything of it: the run, with one sentence;
- a target cannot be asked: that target's stages, each blocked with the reason;
- coverage: nothing; with what it chose to get around its gaps minimal, numerics and scale run;
- minimal: nothing, numerics runs on what does run; numerics: only the model tiers of scale;
- any other error: its own stage, which becomes a blocked or failed record. The report is written in every
  case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from prefect import Task, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture

from day0.adapters.base.errors import Day0Error
from day0.tasks.job import RecordRef, RunOptions, StageJob

from .artifacts import leave_report, leave_stage
from .interrupts import still_ends_on_signals
from .run_start import start_job
from .runs import logged, write_run
from .settings import Settings, load_settings, run_options
from .stage_runs import TargetJob, describe_target, run_stage, take_inventory
from .task_runner import chosen_runner

Result = TypeVar("Result")

_TRANSIENT = ("E106", "E133")  # the hub cannot be reached, or does not answer properly
_AGAIN_AFTER = [10.0, 60.0]  # seconds; the source itself has retried briefly before


def _step(run_name: str | None = None) -> Callable[[Callable[..., Result]], Task[..., Result]]:
    """A task whose arguments may be futures; reuse is by record keys, not by Prefect's cache."""
    return task(cache_policy=NO_CACHE, task_run_name=run_name)


def _is_transient(_: object, __: TaskRun, state: State) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, Day0Error) and error.code in _TRANSIENT


@flow(name="adapt", flow_run_name="adapt-{model}", task_runner=chosen_runner())
def adapt(
    model: str,
    targets: Sequence[str],
    revision: str | None = None,
    store: str | None = None,
    options: RunOptions | None = None,
    command: str = "",
    report_url: str | None = None,
) -> str:
    """Adapts one model to one or more targets; returns the id of the run, whose report is in the store.

    Args:
        model: hub id, folder, or path of a config; `NAME@REV` pins.
        targets: `STACK@DEVICE[:N][/DTYPE][?key=value&...]` each.
        revision: commit, tag or branch, instead of `@REV`.
        store: folder or fsspec URL, for remote workers one that all of them see; None: as the settings say.
        options: what changes the results; None: as the settings say.
        command: shown in the report as the way to run this again.
        report_url: of a site that serves the run store, for the link artifact; None: as the settings say.
    """
    settings = load_settings({"store": store, "report_url": report_url})
    with still_ends_on_signals():
        return walk(model, targets, revision, options or run_options(settings), settings, command)


def walk(
    model: str,
    targets: Sequence[str],
    revision: str | None,
    options: RunOptions,
    settings: Settings,
    command: str,
) -> str:
    """The stages in order; runs inside a flow, `adapt` or `regress`. Arguments and result as there."""
    job = pin(model, revision, targets, settings.store, options)
    with logged(job):
        # The release is counted, and each target says what it is. Neither needs the other.
        asked = {target: describe.submit(job, target) for target in dict.fromkeys(targets)}
        counted = inventory.submit(job)
        counted.result()  # without an inventory there is no record: its error ends the run

        # Needs no target: what would fit where.
        planned = plan.submit(job, counted)

        results: dict[str, list[PrefectFuture[RecordRef]]] = {}
        for target, on_target in asked.items():
            covered = coverage.submit(on_target, counted)  # which operators it lacks
            ran = minimal.submit(on_target, counted, covered)  # whether the first layers load and run
            compared = numerics.submit(on_target, counted, covered, ran)  # whether every node's numbers hold
            scaled = scale.submit(on_target, counted, ran, compared)  # how far up it holds
            results[target] = [covered, ran, compared, scaled]

        return publish(
            job,
            counted.result(),
            planned.result(),
            {target: [future.result() for future in futures] for target, futures in results.items()},
            command,
            settings.report_url,
        )


@task(
    cache_policy=NO_CACHE,
    retries=len(_AGAIN_AFTER),
    retry_delay_seconds=_AGAIN_AFTER,
    retry_condition_fn=_is_transient,
)
def pin(
    model: str, revision: str | None, targets: Sequence[str], store: str, options: RunOptions
) -> StageJob:
    """Resolves the model to one revision for the whole run; waits for a server, so it is retried."""
    return start_job(model, revision, targets, store, options)


@_step("describe {target}")
def describe(job: StageJob, target: str) -> TargetJob:
    """Capabilities and fingerprint of one target, asked through its worker."""
    return describe_target(job, target)


@_step()
def inventory(job: StageJob) -> RecordRef:
    """What the release is, from headers and config."""
    return _left(take_inventory(job), job)


@_step()
def plan(job: StageJob, inventory: RecordRef) -> RecordRef:
    """Which configuration fits on which chip; estimates."""
    return _left(run_stage("plan", TargetJob(job=job), inventory), job)


@_step("coverage {on_target.job.target}")
def coverage(on_target: TargetJob, inventory: RecordRef) -> RecordRef:
    """Which operators the target has, lacks, or gets wrong."""
    return _left(run_stage("coverage", on_target, inventory), on_target.job)


@_step("minimal {on_target.job.target}")
def minimal(on_target: TargetJob, inventory: RecordRef, coverage: RecordRef) -> RecordRef:
    """What loads and executes with the real weights."""
    return _left(run_stage("minimal", on_target, inventory, coverage), on_target.job)


@_step("numerics {on_target.job.target}")
def numerics(
    on_target: TargetJob, inventory: RecordRef, coverage: RecordRef, minimal: RecordRef
) -> RecordRef:
    """How far each node is from the reference, in units of rounding noise."""
    return _left(run_stage("numerics", on_target, inventory, coverage, minimal), on_target.job)


@_step("scale {on_target.job.target}")
def scale(on_target: TargetJob, inventory: RecordRef, minimal: RecordRef, numerics: RecordRef) -> RecordRef:
    """How far up the tiers it holds: one device, two processes, all, batch and length."""
    return _left(run_stage("scale", on_target, inventory, minimal, numerics), on_target.job)


@task(cache_policy=NO_CACHE)
def publish(
    job: StageJob,
    inventory: RecordRef,
    plan: RecordRef,
    on_targets: dict[str, list[RecordRef]],
    command: str,
    report_url: str,
) -> str:
    """Writes the report and leaves its link; returns the run's id."""
    report, place = write_run(job, inventory, plan, on_targets, command)
    leave_report(report, place.html_path, report_url)
    return job.run


def _left(reference: RecordRef, job: StageJob) -> RecordRef:
    leave_stage(reference, job.model)
    return reference
