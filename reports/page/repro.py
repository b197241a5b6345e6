"""The command that shows a finding again, and remedies that name the model and the target at hand."""

from __future__ import annotations

import re
import shlex

from day0.tasks.finding import Finding

from ..model import Report

_COMMAND = re.compile(r"^(?:repro: |\$ )|^(?=(?:day0|python3?|make) )")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERBS = {
    "INV": "inventory",
    "COV": "coverage",
    "MIN": "minimal",
    "NUM": "compare",
    "PLN": "plan",
    "SCL": "health",
}
_PLACEHOLDER = re.compile(r"`[^`]*`")


def reproduce(report: Report, finding: Finding, target: str) -> str:
    """The command among the finding's evidence or, without one, the stage that found it, computed anew."""
    for line in finding.evidence:
        found = _COMMAND.match(line)
        if found:
            return line[found.end() :]
    command = f"day0 {_VERBS.get(finding.code[:3], 'adapt')} {shlex.quote(pinned(report))}"
    return f"{command} --target {shlex.quote(target)} --fresh" if target else command


def is_command(line: str) -> bool:
    """Whether a line of evidence is a command to run."""
    return _COMMAND.match(line) is not None


def filled(remedy: str, report: Report, target: str) -> str:
    """The remedy with `MODEL` and `TARGET` inside its commands replaced by those of the run."""

    def fill(match: re.Match[str]) -> str:
        told = match[0].replace("MODEL", shlex.quote(pinned(report)))
        return told.replace("TARGET", shlex.quote(target)) if target else told

    return _PLACEHOLDER.sub(fill, remedy)


def pinned(report: Report) -> str:
    """The model as the command line takes it, pinned where the revision is a commit."""
    return f"{report.model}@{report.revision}" if _COMMIT.fullmatch(report.revision) else report.model
