"""The command that shows a finding again."""

from __future__ import annotations

import re
import shlex

from day0.tasks.finding import Finding

from ..model import Report

_COMMAND = re.compile(r"^(?:repro: |\$ )|^(?=(?:day0|python3?|make) )")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def reproduce(report: Report, finding: Finding, target: str) -> str:
    """The command among the finding's evidence or, without one, the run on that target, computed anew."""
    for line in finding.evidence:
        found = _COMMAND.match(line)
        if found:
            return line[found.end() :]
    if not target:
        return f"day0 inventory {shlex.quote(pinned(report))} --json"
    return f"day0 adapt {shlex.quote(pinned(report))} --target {shlex.quote(target)} --fresh"


def is_command(line: str) -> bool:
    """Whether a line of evidence is a command to run."""
    return _COMMAND.match(line) is not None


def pinned(report: Report) -> str:
    """The model as the command line takes it, pinned where the revision is a commit."""
    return f"{report.model}@{report.revision}" if _COMMIT.fullmatch(report.revision) else report.model
