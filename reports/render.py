"""Report -> page: a pure function of the report, without a script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from .headline import headline
from .model import Report
from .strict_json import strict_json

if TYPE_CHECKING:
    from .store import RunSummary


def render(report: Report) -> str:
    """The whole page as one HTML text."""
    return f"<!doctype html><title>Day0</title><p>{escape(headline(report))}<pre>{escape(strict_json(report, indent=1))}"


def render_runs(summaries: Sequence[RunSummary]) -> str:
    """The page that lists all runs."""
    rows = "".join(f"<li>{escape(summary.run)} {summary.verdict}" for summary in summaries)
    return f"<!doctype html><title>Day0</title><ul>{rows}</ul>"
