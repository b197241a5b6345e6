"""`day0 report`, `runs` and `diff`: what lies in the run store, without running anything."""

from __future__ import annotations

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.reports.as_json import as_json
from day0.reports.diff import diff_lines, diff_reports
from day0.reports.index import run_lines, write_index
from day0.reports.store import list_runs, read_report, write_report

from .answer import print_answer
from .flags import StoreFlags, Switch, settings_of
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = StoreFlags()


def report(run: str | None = None, /, *, flags: StoreFlags = _DEFAULT) -> int:
    """Draw a run's page again from its records and say where it lies.

    Args:
        run: Id of the run; the newest where it is left out.
        flags: Shared flags.
    """
    store = RunStore(settings_of(flags).store)
    with stdout_for_data() as data:
        found = read_report(store, run or _newest(store, 1)[0])
        place = write_report(store, found)
        if flags.json:
            write_json(data, as_json(found))
        else:
            print_answer(data, found, place.html_path)
    return 0


def runs(*, flags: StoreFlags = _DEFAULT) -> int:
    """List all runs, newest first, and write index.html beside them.

    Args:
        flags: Shared flags.
    """
    store = RunStore(settings_of(flags).store)
    with stdout_for_data() as data:
        summaries = list_runs(store)
        if flags.json:
            write_json(data, [summary.model_dump(mode="json") for summary in summaries])
            return 0
        for line in run_lines(summaries):
            data.write(printable(line) + "\n")
        if summaries:
            data.write(f"page: {write_index(store)}\n")
    return 0


def diff(
    before: str | None = None,
    after: str | None = None,
    /,
    *,
    fail_on_change: Switch = False,
    flags: StoreFlags = _DEFAULT,
) -> int:
    """What changed between two runs.

    Args:
        before: Id of the earlier run; the last but one where it is left out.
        after: Id of the later run; the newest where it is left out.
        fail_on_change: Exit with 1 where anything changed.
        flags: Shared flags.
    """
    store = RunStore(settings_of(flags).store)
    with stdout_for_data() as data:
        later = after or _newest(store, 1)[0]
        earlier = before or _newest(store, 2)[1]
        found = diff_reports(read_report(store, earlier), read_report(store, later), store)
        if flags.json:
            write_json(data, found)
        else:
            for line in diff_lines(found):
                data.write(printable(line) + "\n")
    return 1 if fail_on_change and found.changes else 0


def _newest(store: RunStore, number: int) -> list[str]:
    summaries = list_runs(store)
    if len(summaries) < number:
        raise InputError(
            f"the run store {store.root} has {len(summaries)} of the {number} runs that this needs",
            code="E137",
            remedy="Make one with `day0 adapt`, or name another --store.",
        )
    return [summary.run for summary in summaries[:number]]
