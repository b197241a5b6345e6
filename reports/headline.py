"""The one sentence that says how a run ended."""

from __future__ import annotations

from day0.tasks.verdict import Verdict

from .model import Report, TargetResult
from .records import stages_with
from .words import listed

_SAYS = {
    Verdict.PASS: "passes",
    Verdict.WARN: "works with reservations",
    Verdict.UNVERIFIED: "is not fully verified",
    Verdict.BLOCKED: "could not be judged",
    Verdict.FAIL: "fails",
}


def headline(report: Report) -> str:
    """What became of each target, e.g. `eager@cpu/bf16 passes; onnxruntime@cpu/fp32 fails (numerics)`."""
    if not report.targets:
        return f"The release {_SAYS[report.inventory.verdict]}; no target was tried."
    told = "; ".join(target_phrase(result) for result in report.targets) + "."
    if report.inventory.verdict in (Verdict.FAIL, Verdict.BLOCKED):
        return f"The release itself {_SAYS[report.inventory.verdict]} (inventory); {told}"
    return told


def target_phrase(result: TargetResult) -> str:
    """`TARGET fails (minimal, numerics)`: the verdict with the stages that made it."""
    causes = stages_with(result, result.verdict)
    why = f" ({listed(causes, 4)})" if causes and result.verdict is not Verdict.PASS else ""
    return f"{result.target} {_SAYS[result.verdict]}{why}"
