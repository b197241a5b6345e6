"""The findings of the coverage stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from day0.adapters.base.operator_capture import Capture, Kernel
from day0.adapters.base.target_spec import TargetSpec

from ..finding import Finding, Subject, make_finding
from .kernels import made_for
from .record import CoveredOp, Gap

_CODES = {
    "missing": "COV001",
    "wrong": "COV003",
    "crash": "COV004",
    "hang": "COV005",
    "fallback": "COV014",
    "double_fault": "COV015",
    "slow": "COV016",
}
_WORDS = {
    "missing": "lacks",
    "wrong": "gives wrong values for",
    "crash": "crashes in",
    "hang": "hangs in",
    "fallback": "falls back to the host for",
    "double_fault": "falls back to the host, which has none either, for",
    "slow": "is slow in",
}
_FATAL = ("missing", "wrong", "crash", "hang", "double_fault")
"""Statuses without which the model does not run, or not rightly."""

_LISTED = 10


def findings_of(
    spec: TargetSpec,
    ops: Sequence[CoveredOp],
    gaps: Sequence[tuple[CoveredOp, Gap]],
    *,
    can_probe: bool,
    undecided: Collection[str] = (),
) -> Iterator[Finding]:
    """What the target makes of the model's operators, those about single operators first.

    Args:
        spec: the target.
        ops: every operator.
        gaps: those that are not native, with what is known of them.
        can_probe: whether the target runs single operators.
        undecided: ids of gaps with a way around that there was no time to try.
    """
    name = str(spec)
    for entry, gap in gaps:
        if gap.status in _CODES:
            yield _about_operator(name, entry, gap, undecided=gap.id in undecided)
    yield from _untried(name, [gap for _, gap in gaps if gap.id in undecided and gap.status in _FATAL])
    yield from _undecided(name, [entry for entry in ops if entry.status == "unknown"], can_probe=can_probe)
    yield from _rebuilt(name, [gap for _, gap in gaps if gap.status == "decomposed"])
    inherited = [entry for entry in ops if entry.grade == "inherited"]
    if inherited:
        yield make_finding(
            "COV012",
            Subject(kind="target", name=name),
            f"{len(inherited)} of {len(ops)} operators were measured under another exact version of the "
            "same family.",
        )


def findings_of_model(capture: Capture, kernels: Sequence[Kernel], spec: TargetSpec) -> Iterator[Finding]:
    """What could not be captured, and what no dispatcher sees."""
    if capture.unbuilt:
        subject = Subject(kind="model", name="operators")
        yield make_finding("COV013", subject, capture.unbuilt, evidence=["config.json"])
    undecided = capture.undecided
    for anomaly in capture.anomalies:
        if anomaly.code != "model_not_built":
            code = "COV008" if anomaly in undecided else "COV021"
            yield make_finding(code, Subject(kind="model", name=anomaly.subject), anomaly.message)
    if kernels:
        unmade = [kernel.name for kernel in kernels if made_for(kernel, spec.device) is False]
        without = [kernel.name for kernel in kernels if not kernel.fallback]
        said = f"The model asks for {len(kernels)} kernels outside the dispatcher: {_listed(kernels)}."
        if unmade:
            said += f" {len(unmade)} of them are not made for {spec.device}."
        if without:
            said += f" Without {', '.join(without[:_LISTED])} transformers does not run it as it is stored."
        else:
            said += " Without them the model runs other code."
        evidence = [
            f"{kernel.name}: required by {', '.join(kernel.required_by[:3]) or 'the model'}"
            f"{'; made for ' + ', '.join(kernel.architectures) if kernel.architectures else ''}"
            f"{'; without it: ' + kernel.fallback if kernel.fallback else ''}"
            for kernel in kernels[:_LISTED]
        ]
        yield make_finding(
            "COV011",
            Subject(kind="model", name="kernels"),
            said,
            evidence=evidence,
            severity="warning" if without else "info",
        )


def low_precision_findings(spec: TargetSpec, scheme: str, gaps: Sequence[Gap]) -> Iterator[Finding]:
    """What the stored precision asks for and the target does not run, in one finding."""
    if not gaps:
        return
    names = ", ".join(f"{gap.op}({','.join(gap.dtypes)}) {gap.status}" for gap in gaps[:_LISTED])
    share = sum(gap.impact for gap in gaps)
    around = "; dequantised it runs here" if gaps[0].checked else ""
    yield make_finding(
        "COV018",
        Subject(kind="model", name=scheme),
        f"The weights are stored as {scheme}, for which {spec} lacks {len(gaps)} operators with {share:.1%} "
        f"of the work: {names}{around}.",
        evidence=[f"{gap.op}: {gap.evidence}" for gap in gaps[:_LISTED]],
    )


def failed_ways(spec: TargetSpec, failed: Mapping[str, str], broken: Mapping[str, str]) -> Iterator[Finding]:
    """Ways around that were tried in vain.

    Args:
        spec: the target.
        failed: id of one that might have closed a gap -> what became of it.
        broken: the same of those that the target names, with which it runs.
    """
    for way, why in sorted({**failed, **broken}.items()):
        subject = Subject(kind="target", name=f"{spec} {way}")
        said = f"{way} does not get {spec} around its gap: {why}"
        if way in broken:
            said = f"{spec} names the way around {way}, which does not work there: {why}"
        yield make_finding("COV024" if way in broken else "COV017", subject, said, evidence=[why])


def _about_operator(target: str, entry: CoveredOp, gap: Gap, *, undecided: bool) -> Finding:
    code = _CODES[entry.status]
    if entry.status == "missing" and entry.evidence.startswith("dtype:"):
        code = "COV002"
    if list(entry.phases) == ["sampling"]:
        code = "COV010"
    dtypes = ",".join(entry.dtypes) or "no tensors"
    inside = f" with {entry.variant}" if entry.variant else ""
    shown = [f"gap {gap.id}: its script and a text for its owner are in the record"] if gap.repro else []
    crossing = f", {gap.bytes_per_call} bytes crossing with each" if gap.bytes_per_call else ""
    return make_finding(
        code,
        Subject(kind="operator", name=_name(entry)),
        f"{target} {_WORDS[entry.status]} {entry.op}{inside} for {dtypes}, called {entry.calls} times in "
        f"{', '.join(entry.phases)} ({entry.impact:.1%} of the work{crossing}), first by "
        f"{entry.module or 'the model'}.{_around(gap)}",
        evidence=[entry.evidence, *shown],
        severity="warning" if gap.checked or undecided else None,
    )


def _untried(target: str, gaps: Sequence[Gap]) -> Iterator[Finding]:
    if not gaps:
        return
    share = sum(gap.impact for gap in gaps)
    named = ", ".join(
        f"{gap.op}({','.join(gap.dtypes)}) by {gap.workaround or 'whatever there is'}"
        for gap in gaps[:_LISTED]
    )
    rest = len(gaps) - _LISTED
    yield make_finding(
        "COV022",
        Subject(kind="target", name=target),
        f"No time was left to look for or try ways around {len(gaps)} gaps with {share:.1%} of the work: "
        f"{named}"
        f"{f' and {rest} more' if rest > 0 else ''}.",
        evidence=[f"{gap.op}: {gap.evidence}" for gap in gaps[:_LISTED]],
    )


def _around(gap: Gap) -> str:
    if not gap.workaround:
        return ""
    return f" Way around: {gap.workaround}{f', {gap.checked}' if gap.checked else ', not tried here'}."


def _rebuilt(target: str, gaps: Sequence[Gap]) -> Iterator[Finding]:
    if not gaps:
        return
    launches = sum(gap.launches for gap in gaps)
    names = ", ".join(
        f"{gap.op}({','.join(gap.dtypes)})" + (f"[{gap.variant}]" if gap.variant else "")
        for gap in gaps[:_LISTED]
    )
    ways = list(dict.fromkeys(gap.workaround for gap in gaps if gap.workaround and gap.checked))
    around = f" Later stages run with {', '.join(ways)}." if ways else ""
    yield make_finding(
        "COV007",
        Subject(kind="target", name=target),
        f"{len(gaps)} operators are missing and can be rebuilt from others, {launches} launches more for one "
        f"call of each: {names}.{around}",
        evidence=[
            f"{gap.op}: {gap.evidence}; {gap.checked or 'not run as a whole'}" for gap in gaps[:_LISTED]
        ],
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
        evidence=[f"{_name(entry)}: {entry.evidence}" for entry in unknown[:_LISTED]],
    )


def _names(entries: Sequence[CoveredOp]) -> str:
    shown = [_name(entry) for entry in entries[:_LISTED]]
    rest = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _name(entry: CoveredOp) -> str:
    return f"{entry.op}({','.join(entry.dtypes)})" + (f"[{entry.variant}]" if entry.variant else "")


def _listed(kernels: Sequence[Kernel]) -> str:
    rest = len(kernels) - _LISTED
    return ", ".join(kernel.name for kernel in kernels[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
