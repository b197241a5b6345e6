"""Baselines: the accepted report of one model on one target, kept whole; it outlives its run's folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Value, digest
from day0.reports.model import Report
from day0.reports.store import read_report

from .runs import latest_run


class Baseline(Value):
    """What has been accepted.

    Attributes:
        model: without a revision; a folder by its full path.
        target: the target's text.
        accepted: UTC, ISO 8601.
        owner: who accepted it.
        report: of the accepted run, with this target alone.
    """

    model: str
    target: str
    accepted: str
    owner: str
    report: Report


def model_name(model: str) -> str:
    """The name under which a model's baseline is kept: a hub id as it is, a folder by its full path."""
    return str(Path(model).resolve()) if Path(model).exists() else model


def read_baseline(store: RunStore, model: str, target: str) -> Baseline | None:
    """The baseline of that model and target; None where nothing has been accepted.

    Raises:
        InputError: E158, its file cannot be read by this version.
    """
    name = _name(model, target)
    if not store.exists(name):
        return None
    try:
        return Baseline.model_validate_json(store.read(name))
    except ValidationError as error:
        raise InputError(
            f"the baseline of {model} on {target} cannot be read by this version of day0",
            code="E158",
            remedy="Accept a new run with `day0 baseline accept`.",
        ) from error


def list_baselines(store: RunStore) -> list[Baseline]:
    """All baselines that this version can read, by model and target."""
    found = []
    for entry in store.list("baselines"):
        try:
            found.append(Baseline.model_validate_json(store.read(f"baselines/{entry}")))
        except ValidationError:
            continue
    return sorted(found, key=lambda each: (each.model, each.target))


def accept_run(
    store: RunStore, run: str | None, *, model: str | None = None, target: str | None = None, owner: str = ""
) -> list[Baseline]:
    """Makes a run's report the baseline of each of its targets, or of one of them.

    Args:
        store: of the run.
        run: id; None: the newest of that model and target.
        model: None: any.
        target: None: all targets of the run.
        owner: who accepts; empty: the login name.

    Raises:
        InputError: E130 or E159, there is no such run or it has no such target.
    """
    chosen = run or latest_run(store, model, target)
    if chosen is None:
        raise InputError(
            f"the run store {store.root} has no run of {model or 'any model'} on {target or 'any target'}",
            code="E159",
            remedy="Make one with `day0 adapt`.",
        )
    report = read_report(store, chosen)
    results = [result for result in report.targets if target in (None, result.target)]
    if not results:
        raise InputError(
            f"run {chosen} has no target {target!r}",
            code="E159",
            remedy=f"It has {', '.join(result.target for result in report.targets) or 'none'}.",
        )
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    baselines = [
        Baseline(
            model=model_name(report.model),
            target=result.target,
            accepted=moment,
            owner=owner or os.environ.get("USER") or "unknown",
            report=report.model_copy(update={"targets": (result,)}),
        )
        for result in results
    ]
    for baseline in baselines:
        store.write(_name(baseline.model, baseline.target), baseline.model_dump_json().encode())
    return baselines


def _name(model: str, target: str) -> str:
    return f"baselines/{digest([model_name(model), target])}.json"
