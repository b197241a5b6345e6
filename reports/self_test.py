"""The gate's own test in words: what became of each bug that was put in on purpose, and of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record_parts import BugResult, SelfTest

from .words import exact_text, listed, plural

MISSED, ELSEWHERE, FOUND, HIDDEN, UNTRIED, ABSENT = "missed", "elsewhere", "found", "hidden", "untried", "no"


def outcome(bug: BugResult) -> str:
    """What became of a bug.

    `missed`; `elsewhere`: found, another node named; `found`; `hidden`: smaller than rounding and not tried
    in a wider dtype; `untried`; `no`: the model lacks the part.
    """
    if bug.applicability == "no":
        return ABSENT
    if bug.detected is None:
        return HIDDEN if bug.applicability == "below_noise" else UNTRIED
    if not bug.detected:
        return MISSED
    return ELSEWHERE if bug.block_right is False else FOUND


def misses(test: SelfTest) -> Sequence[str]:
    """Bugs that apply, or that a wider dtype should show, and were not found."""
    return [bug.bug for bug in test.matrix if outcome(bug) == MISSED]


def judged(test: SelfTest) -> tuple[str, str]:
    """Verdict word, and `n of m bugs that apply were found` with what else is to be known."""
    came_to = [(bug, outcome(bug)) for bug in test.matrix]
    applying = [what for bug, what in came_to if bug.applicability == "yes"]
    below = [what for bug, what in came_to if bug.applicability == "below_noise"]
    astray = [bug.bug for bug, what in came_to if what == ELSEWHERE]
    missed = misses(test)
    parts = [_found(applying)]
    if missed:
        parts.append(f"Missed: {listed(missed, 5)}.")
    if astray:
        parts.append(f"Another node was named for {listed(astray, 5)}.")
    if below:
        verb = "moves" if len(below) == 1 else "move"
        parts.append(
            f"{plural(len(below), 'bug')} {verb} the result by less than its rounding; "
            f"{exact_text(_seen(below))} of these found in a wider dtype."
        )
    parts.append(_observer(test.observer))
    if missed or test.observer is False:
        return "fail", " ".join(parts)
    undecided = not applying or test.observer is None or {HIDDEN, UNTRIED} & {what for _, what in came_to}
    return "warn" if astray else "unverified" if undecided else "pass", " ".join(parts)


def _found(applying: Sequence[str]) -> str:
    if not applying:
        return "No bug applies to this model in this precision."
    return f"{exact_text(_seen(applying))} of {exact_text(len(applying))} bugs that apply were found."


def _seen(outcomes: Sequence[str]) -> int:
    return sum(what in (FOUND, ELSEWHERE) for what in outcomes)


def _observer(observer: bool | None) -> str:
    if observer is None:
        return "Whether capturing changes the result was not tried."
    return "Capturing does not change the result." if observer else "Capturing changes the result."
