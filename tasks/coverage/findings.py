"""The findings of the coverage stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Target

from ..finding import Finding, Subject, make_finding
from .record import CoveredOp

_CODES = {"missing": "COV001", "wrong": "COV003", "crash": "COV004", "hang": "COV005"}
_WORDS = {"missing": "lacks", "wrong": "gives wrong values for", "crash": "crashes in", "hang": "hangs in"}
_LISTED = 10


def findings_of(
    target: Target,
    skeleton: Skeleton,
    ops: Sequence[CoveredOp],
    kernels: Sequence[str],
    *,
    can_probe: bool,
) -> Iterator[Finding]:
    """All findings, those about single operators first."""
    name = str(target.spec)
    for entry in ops:
        if entry.status in _CODES:
            yield _about_operator(name, entry)
    yield from _undecided(name, [entry for entry in ops if entry.status == "unknown"], can_probe=can_probe)
    decomposed = [entry for entry in ops if entry.status == "decomposed"]
    if decomposed:
        yield make_finding(
            "COV007",
            Subject(kind="target", name=name),
            f"{len(decomposed)} operators are rebuilt from others: {_names(decomposed)}.",
            evidence=[f"{entry.op}: {entry.evidence}" for entry in decomposed[:_LISTED]],
        )
    inherited = [entry for entry in ops if entry.grade == "inherited"]
    if inherited:
        yield make_finding(
            "COV012",
            Subject(kind="target", name=name),
            f"{len(inherited)} of {len(ops)} operators were measured under another exact version of the "
            "same family.",
        )
    for anomaly in skeleton.anomalies:
        if anomaly.code == "phase_not_captured":
            yield make_finding("COV008", Subject(kind="model", name=anomaly.subject), anomaly.message)
    if kernels:
        yield make_finding(
            "COV011",
            Subject(kind="model", name="kernels"),
            f"The config asks for {len(kernels)} kernels outside the dispatcher: {', '.join(kernels)}.",
            evidence=["config.json#/quantization_config"],
        )


def _about_operator(target: str, entry: CoveredOp) -> Finding:
    code = _CODES[entry.status]
    if entry.status == "missing" and entry.evidence.startswith("dtype:"):
        code = "COV002"
    if list(entry.phases) == ["sampling"]:
        code = "COV010"
    dtypes = ",".join(entry.dtypes) or "no tensors"
    around = f" Way around: {entry.workaround}." if entry.workaround else ""
    return make_finding(
        code,
        Subject(kind="operator", name=f"{entry.op}({','.join(entry.dtypes)})"),
        f"{target} {_WORDS[entry.status]} {entry.op} for {dtypes}, called {entry.calls} times in "
        f"{', '.join(entry.phases)} ({entry.impact:.1%} of the work), first by "
        f"{entry.module or 'the model'}.{around}",
        evidence=[entry.evidence],
    )


def _undecided(target: str, unknown: Sequence[CoveredOp], *, can_probe: bool) -> Iterator[Finding]:
    if not unknown:
        return
    share = sum(entry.impact for entry in unknown)
    code = "COV006" if can_probe else "COV009"
    yield make_finding(
        code,
        Subject(kind="target", name=target),
        f"{len(unknown)} operators with {share:.1%} of the work are unknown on {target}: {_names(unknown)}.",
        evidence=[f"{entry.op}({','.join(entry.dtypes)}): {entry.evidence}" for entry in unknown[:_LISTED]],
    )


def _names(entries: Sequence[CoveredOp]) -> str:
    shown = [f"{entry.op}({','.join(entry.dtypes)})" for entry in entries[:_LISTED]]
    rest = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
