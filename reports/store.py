"""Reports in the run store: `runs/RUN/report.json`, `report.html` and a small `summary.json` for lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Value
from day0.tasks.verdict import Verdict

from .headline import headline
from .model import REPORT_SCHEMA, Report
from .strict_json import strict_json

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class RunSummary(Value):
    """One row of a list of runs.

    Attributes:
        run: id, also the folder's name.
        created: UTC, ISO 8601.
        model: as named.
        revision: pinned.
        verdict: of the whole.
        targets: target -> verdict.
        headline: one sentence.
    """

    run: str
    created: str
    model: str
    revision: str
    verdict: Verdict
    targets: Mapping[str, Verdict]
    headline: str = ""


class Published(Value):
    """Where a report lies: paths of its JSON and its page."""

    json_path: str
    html_path: str


def write_report(store: RunStore, report: Report) -> Published:
    """Writes `report.json`, `report.html` and `summary.json` of a run; each file appears whole."""
    from .render import render  # the template engine, which a verb that draws nothing need not wait for

    folder = run_folder(report.run)
    json_path = store.write(f"{folder}/report.json", strict_json(report).encode())
    html_path = store.write(f"{folder}/report.html", render(report).encode())
    store.write(f"{folder}/summary.json", strict_json(summarize(report)).encode())
    return Published(json_path=json_path, html_path=html_path)


def read_report(store: RunStore, run: str) -> Report:
    """The report of a run.

    Raises:
        InputError: E130, no such run; E136, its report cannot be read by this version.
    """
    name = f"{run_folder(run)}/report.json"
    if not store.exists(name):
        known = [summary.run for summary in list_runs(store)[:3]]
        raise InputError(
            f"run {run!r} has no report in the run store {store.root}",
            code="E130",
            remedy=f"Runs there: {', '.join(known)}." if known else "No run there has a report yet.",
        )
    return parse_report(store.read(name), where=name)


def parse_report(text: bytes | str, *, where: str = "report.json") -> Report:
    """The report that a `report.json` holds.

    Raises:
        InputError: E136, it is not a report or of another schema.
    """
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{where} is not a report of schema {REPORT_SCHEMA}: {_first_fault(error)}",
            code="E136",
            remedy="Read it with the version of day0 that wrote it, or run adapt again.",
        ) from error


def list_runs(store: RunStore) -> Sequence[RunSummary]:
    """All runs that have a report, newest first."""
    summaries = []
    for run in store.list("runs"):
        name = f"runs/{run}/summary.json"
        if _RUN_NAME.fullmatch(run) and store.exists(name):
            try:
                summary = RunSummary.model_validate_json(store.read(name))
            except ValidationError:  # of another version, or cut short; its report may still be readable
                continue
            summaries.append(summary.model_copy(update={"run": run}))
    return sorted(summaries, key=lambda summary: (summary.created, summary.run), reverse=True)


def summarize(report: Report) -> RunSummary:
    """The row of a report in a list of runs."""
    return RunSummary(
        run=report.run,
        created=report.created,
        model=report.model,
        revision=report.revision,
        verdict=report.verdict,
        targets={result.target: result.verdict for result in report.targets},
        headline=headline(report),
    )


def run_folder(run: str) -> str:
    """The folder of a run in the store.

    Raises:
        InputError: E130, the id cannot be a folder's name.
    """
    if not _RUN_NAME.fullmatch(run):
        raise InputError(
            f"run {run!r} cannot be the name of a run",
            code="E130",
            remedy="Take an id from `day0 runs`.",
        )
    return f"runs/{run}"


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = "/".join(str(part) for part in first["loc"])
    return f"{place or 'document'}: {json.dumps(first['msg'])}"
