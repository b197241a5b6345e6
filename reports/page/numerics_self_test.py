"""The gate tested by bugs put in on purpose: which it found, which it missed, which rounding hides."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import BugResult, SelfTest

from ..words import exact_text, plural
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Group, Row, Table, settle

_OUTCOMES = {
    "missed": ("fail", "missed"),
    "elsewhere": ("warn", "found, wrong node"),
    "found": ("pass", "found"),
    "found_fp32": ("pass", "found"),
    "hidden": ("unverified", "hidden by rounding"),
    "untried": ("unverified", "not tried"),
    "no": ("", "not in this model"),
}
_ORDER = tuple(_OUTCOMES)
_APPLIES = {"yes": "yes", "below_noise": "below noise", "no": "no"}
_DASH = "\N{EN DASH}"


def self_test_group(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, limit: int) -> Group | None:
    """The detection matrix with its sentence; None where the gate was not tested."""
    test = facts.self_test
    if test is None:
        return None
    look, lead = judged(test)
    return Group(
        id=f"numerics--{slug}--self-test",
        title="The gate itself",
        lead=lead,
        look=look,
        tables=[settle(_matrix(ledger, test, slug, rest, limit))] if test.matrix else (),
    )


def outcome(bug: BugResult) -> str:
    """What became of a bug: a key of the table's words; one below the noise is missed only without noise."""
    if bug.applies == "no":
        return "no"
    below = bug.applies == "below_noise"
    if bug.detected is None:
        return "hidden" if below else "untried"
    if not bug.detected:
        return "missed"
    if bug.block_right is False:
        return "elsewhere"
    return "found_fp32" if below else "found"


def judged(test: SelfTest) -> tuple[str, str]:
    """Verdict word and `n of m that apply were found`."""
    counted = [(bug, outcome(bug)) for bug in test.matrix]
    applying = [(bug, what) for bug, what in counted if bug.applies == "yes"]
    found = sum(what in ("found", "elsewhere") for _, what in applying)
    told = f"{exact_text(found)} of {exact_text(len(applying))} bugs that apply were found"
    misplaced = [bug.bug for bug, what in counted if what == "elsewhere"]
    missed = [bug.bug for bug, what in counted if what == "missed"]
    parts = [told + (f", {exact_text(len(misplaced))} of them at a wrong node." if misplaced else ".")]
    if missed:
        parts.append(f"Missed: {', '.join(missed[:5])}{' and more' if len(missed) > 5 else ''}.")
    below = [what for bug, what in counted if bug.applies == "below_noise"]
    if below:
        seen = sum(what in ("found_fp32", "elsewhere") for what in below)
        verb = "moves" if len(below) == 1 else "move"
        parts.append(
            f"{plural(len(below), 'bug')} {verb} the result by less than its rounding; {exact_text(seen)} "
            "of these found in a wider dtype."
        )
    parts.append(_observer(test.observer))
    open_ones = (
        not applying or test.observer is None or any(what in ("hidden", "untried") for _, what in counted)
    )
    if missed or test.observer is False:
        return "fail", " ".join(parts)
    return "warn" if misplaced else "unverified" if open_ones else "pass", " ".join(parts)


def _observer(observer: bool | None) -> str:
    if observer is None:
        return "Whether capturing changes the result was not tried."
    return "Capturing does not change the result." if observer else "Capturing changes the result."


def _matrix(ledger: Ledger, test: SelfTest, slug: str, rest: str, limit: int) -> Table:
    bugs = test.matrix
    worst_first = sorted(range(len(bugs)), key=lambda place: _ORDER.index(outcome(bugs[place])))
    shown = set(pick(len(bugs), limit, lambda place: _ORDER.index(outcome(bugs[place]))))
    return Table(
        id=f"numerics--{slug}--bugs",
        caption="Bugs put in on purpose",
        columns=[
            Column("Bug"),
            Column("Outcome"),
            Column(
                "Applies", help="Below noise: its effect is smaller than rounding in the target's precision."
            ),
            Column("Effect", True, "In fp64 on that node, in units of noise, largest over the measures."),
            Column("Right node", help="Whether the node at fault, and no other, was named."),
            Column("Shown by", help="The measure that was beyond its tolerance."),
            Column("Dtype", help="Of the target on which it was tried."),
        ],
        rows=[_row(ledger, bugs[place], place) for place in worst_first if place in shown],
        total=len(bugs),
        rest=rest,
    )


def _row(ledger: Ledger, bug: BugResult, place: int) -> Row:
    look, word = _OUTCOMES[outcome(bug)]
    applies = bug.applies != "no"
    effect = (
        ledger.cell(f"/self_test/matrix/{place}/effect", "number") if applies else Cell(_DASH, numeric=True)
    )
    return Row(
        [
            Cell(bug.bug, code=True, status=look, below=" ".join(filter(None, (bug.where, _because(bug))))),
            Cell(word, whole=True),
            Cell(_APPLIES.get(bug.applies, bug.applies), whole=True),
            effect,
            _yes_no(bug.block_right),
            Cell(bug.by, code=bool(bug.by)),
            Cell(bug.dtype, code=bool(bug.dtype)),
        ],
        status=look,
    )


def _because(bug: BugResult) -> str:
    return f"({bug.reason})" if bug.reason and bug.where else bug.reason


def _yes_no(value: bool | None) -> Cell:
    return Cell(_DASH if value is None else "yes" if value else "no")


def misses(test: SelfTest) -> Sequence[str]:
    """Bugs that apply, or that a wider dtype should show, and were not found."""
    return [bug.bug for bug in test.matrix if outcome(bug) == "missed"]
