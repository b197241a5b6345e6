"""Report -> page: one self-contained HTML text, a pure function of the report, without a script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from .model import Report
from .page.build import build_page
from .page.table_html import cell_html, notes_html, rows_html
from .page.text import CELL_LIMIT, clean, day, finalize, prose, shell

if TYPE_CHECKING:
    from .store import RunSummary

_MAX_RUNS = 2_000
_ICON_COLOURS = {
    "pass": "1a7f37",
    "warn": "9a6700",
    "unverified": "5a55c9",
    "blocked": "66707c",
    "fail": "c4221f",
}


def render(report: Report) -> str:
    """The whole page as one HTML text; the same report gives the same text."""
    return _environment().get_template("report.html.j2").render(page=build_page(report), **_style())


def render_runs(summaries: Sequence[RunSummary]) -> str:
    """The page that lists all runs, with links relative to the root of the run store."""
    hidden = max(0, len(summaries) - _MAX_RUNS)
    template = _environment().get_template("runs.html.j2")
    return template.render(runs=summaries, hidden=hidden, **_style())


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        finalize=finalize,
        loader=FunctionLoader(_template),
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["clip"] = _clip
    environment.filters["prose"] = prose
    environment.filters["shell"] = shell
    environment.filters["day"] = day
    environment.globals.update(
        favicon=_favicon, cell_html=cell_html, notes_html=notes_html, rows_html=rows_html
    )
    return environment


def _template(name: str) -> str:
    return resources.files("day0.templates").joinpath(name).read_text(encoding="utf-8")


def _clip(text: Any, limit: int = CELL_LIMIT) -> str:
    return clean(text, limit)


@cache
def _style() -> dict[str, Any]:
    """The stylesheet and the hash under which the page's policy allows it, and nothing else."""
    text = _template("report.css")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    # Our own file, never text from outside; the hash makes any change visible.
    return {"style": Markup(text), "style_hash": f"sha256-{digest}"}


def _favicon(verdict: str) -> str:
    colour = _ICON_COLOURS[verdict]
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        f"%3Ccircle cx='8' cy='8' r='7' fill='%23{colour}'/%3E%3C/svg%3E"
    )
