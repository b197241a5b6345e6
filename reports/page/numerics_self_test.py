"""The gate tested by bugs put in on purpose: which it found, which it missed, which rounding hides."""

from __future__ import annotations

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import BugResult, SelfTest

from ..self_test import ABSENT, ELSEWHERE, FOUND, HIDDEN, MISSED, UNTRIED, judged, outcome
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Group, Row, Table, settle

_OUTCOMES = {
    MISSED: ("fail", "missed"),
    ELSEWHERE: ("warn", "found, wrong node"),
    UNTRIED: ("unverified", "not tried"),
    HIDDEN: ("unverified", "hidden by rounding"),
    FOUND: ("pass", "found"),
    ABSENT: ("", "not in this model"),
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
    applies = bug.applicability != "no"
    effect = (
        ledger.cell(f"/self_test/matrix/{place}/effect", "number") if applies else Cell(_DASH, numeric=True)
    )
    return Row(
        [
            Cell(bug.bug, code=True, status=look, below=" ".join(filter(None, (bug.where, _because(bug))))),
            Cell(word, whole=True),
            Cell(_APPLIES.get(bug.applicability, bug.applicability), whole=True),
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
