"""The adaptation requirements list: what has to be validated on each target, by whom, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from day0.tasks.finding import Finding
from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict

from ..model import Report, TargetResult
from ..records import VERDICT_RANK, stage_records, stage_verdict
from .blocks import target_slug

_STATE = {
    Verdict.PASS: "validated",
    Verdict.WARN: "with reservations",
    Verdict.UNVERIFIED: "open",
    Verdict.BLOCKED: "blocked",
    Verdict.FAIL: "failed",
}
_ANSWER = {"yes": Verdict.PASS, "no": Verdict.FAIL}
_TIER = {"passed": Verdict.PASS, "failed": Verdict.FAIL, "not_reached": Verdict.BLOCKED}


@dataclass(frozen=True)
class State:
    """How far a requirement is on one target: verdict word, state in words, id of the part that shows it."""

    verdict: str
    words: str
    href: str


@dataclass(frozen=True)
class Requirement:
    """One thing to validate.

    Attributes:
        what: in words.
        owner: who can settle it.
        states: one a target, or a single one that holds for all.
    """

    what: str
    owner: str
    states: Sequence[State]


def requirements(report: Report) -> Sequence[Requirement]:
    """In the order of the stages."""
    each = report.targets
    listing = [
        Requirement(
            "The release is complete and consistent in itself",
            "publisher of the model",
            [_release(report)],
        ),
        _per_target(each, "Every operator is there and gives right results", "owner of the stack", _coverage),
        _per_target(
            each, "The stack's own loader takes the weights", "owner of the stack", _asked("weights")
        ),
        _per_target(each, "Every kind of node executes", "owner of the stack", _asked("graph")),
        _per_target(each, "Every node agrees with the reference", "owner of the stack", _asked("results")),
    ]
    tiers = {
        tier.number: tier.name
        for result in each
        if result.stages.scale
        for tier in result.stages.scale.facts.tiers
    }
    listing += [
        _per_target(each, f"Scale tier {number}: {name}", "owner of the cluster", _tier(number))
        for number, name in sorted(tiers.items())
    ]
    return [row for row in [*listing, *_plan(report)] if row.states]


def _release(report: Report) -> State:
    """As the inventory judges it; what is not all there cannot be validated yet."""
    state = _of_record(report.inventory, "stage-inventory")
    whole = report.inventory.facts.readiness.state == "complete"
    return state if whole or state.verdict != Verdict.PASS else _state(Verdict.UNVERIFIED, state.href)


def _per_target(
    results: Sequence[TargetResult], what: str, owner: str, state: Callable[[TargetResult], State]
) -> Requirement:
    return Requirement(what, owner, [state(result) for result in results])


def _coverage(result: TargetResult) -> State:
    return _of_record(result.stages.coverage, f"coverage--{target_slug(result)}")


def _asked(question: str) -> Callable[[TargetResult], State]:
    stage = "numerics" if question == "results" else "minimal"

    def state(result: TargetResult) -> State:
        record, href = stage_records(result.stages)[stage], f"{stage}--{target_slug(result)}"
        answer = next((asked.answer for asked in result.questions if asked.id == question), "unverified")
        if record is None:
            return _state(Verdict.UNVERIFIED, href)
        verdict = _ANSWER.get(answer, Verdict.UNVERIFIED)
        if verdict is Verdict.UNVERIFIED and record.verdict is Verdict.BLOCKED:
            verdict = Verdict.BLOCKED
        accepted = _accepted(record.findings)
        if verdict is Verdict.FAIL and record.verdict is Verdict.WARN and accepted:
            return State(Verdict.WARN, accepted, href)
        return _state(verdict, href)

    return state


def _tier(number: int) -> Callable[[TargetResult], State]:
    def state(result: TargetResult) -> State:
        scale, href = result.stages.scale, f"scale--{target_slug(result)}"
        tiers = scale.facts.tiers if scale else ()
        outcome = next((tier.outcome for tier in tiers if tier.number == number), "")
        return _state(_TIER.get(outcome, Verdict.UNVERIFIED), href)

    return state


def _plan(report: Report) -> Sequence[Requirement]:
    """An estimate becomes a fact only on the chip."""
    plans = [result.stages.plan for result in report.targets if result.stages.plan]
    if not report.targets:
        return ()
    if plans and not plans[0].facts.recommended:
        return [
            Requirement("A configuration that fits is known", "you", [_of_record(plans[0], "stage-plan")])
        ]
    what = "A recommended configuration is confirmed on its chip (so far an estimate)"
    return [Requirement(what, "you", [_state(Verdict.UNVERIFIED, "stage-plan")])]


def _of_record(record: StageRecord | None, href: str) -> State:
    verdict = stage_verdict(record)
    accepted = _accepted(record.findings) if record is not None else ""
    if accepted and verdict is Verdict.WARN:
        return State(verdict, accepted, href)
    return _state(verdict, href)


def _state(verdict: Verdict, href: str) -> State:
    return State(verdict, _STATE[verdict], href)


def _accepted(findings: Sequence[Finding]) -> str:
    """Who accepted what the findings say, and until when; empty where some finding is not accepted."""
    waivers = [finding.waiver for finding in findings if finding.waiver is not None]
    rest = [finding for finding in findings if finding.waiver is None]
    if not waivers or any(VERDICT_RANK[finding.verdict] > 0 for finding in rest):
        return ""
    soonest = min(waivers, key=lambda waiver: waiver.expires)
    return f"accepted by {soonest.owner} until {soonest.expires}"
