"""The list of all runs: rows for `day0 runs` and the page `index.html` at the root of the run store."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.run_store import RunStore

from .store import RunSummary, list_runs


def run_lines(summaries: Sequence[RunSummary]) -> Sequence[str]:
    """One line a run for a terminal, newest first."""
    if not summaries:
        return ["No run has a report yet."]
    width = max(len(summary.run) for summary in summaries)
    return [
        f"{summary.run:<{width}}  {summary.verdict:<10}  {summary.model}  "
        + "  ".join(f"{target}={verdict}" for target, verdict in summary.targets.items())
        for summary in summaries
    ]


def write_index(store: RunStore) -> str:
    """Writes `index.html` with a row and a link for every run, newest first; returns its path."""
    from .render import render_runs  # see `write_report`

    return store.write("index.html", render_runs(list_runs(store)).encode())
