"""Tables with one row for each node: what is judged, and beside it what else was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record import Metrics, NumericsFacts

from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Row, Table, settle
from .text import element_id

LOOK = {"pass": "pass", "fail": "fail", "inherited": "warn", "unverified": "unverified"}
_WEIGHT = {"fail": 0, "unverified": 1, "inherited": 2, "pass": 3}
_DASH = "\N{EN DASH}"

_JUDGED = (
    ("rel_l2", "number", "Relative L2", "Local: the node alone, on the reference's input."),
    ("ratio", "number", "Over noise", "Relative L2 over that of the reference in the target's precision."),
    ("token_ratio", "number", "Typical token", "Median token's relative L2 over the noise's median."),
    ("worst_ratio", "number", "Worst token", "Worst token's relative L2 over the noise's worst."),
    ("channel_ratio", "number", "Worst channel", "Worst channel's relative L2 over that channel's noise."),
    ("gain_score", "number", "Gain score", "Mean gain over its standard error in the noise arm."),
)
_OTHERS = (
    ("cosine", "gap", "1 - cosine", ""),
    ("centred_cosine", "gap", "centred", "1 - cosine about each side's mean."),
    ("max_abs", "number", "Max. difference", ""),
    (
        "ulp",
        "number",
        "ULP",
        "99.9 % quantile of the error, in units in the last place of the target's dtype.",
    ),
    ("gain", "number", "Gain", "Mean over tokens of <t, r> / <r, r> - 1."),
    ("outliers", "exact", "Outliers", "Tokens of a routed node that are too far off for rounding."),
    ("nan", "exact", "NaNs", "In the target's output and not in the reference's."),
    ("nonfinite", "exact", "Not finite", "In the target's output and not in the reference's."),
)


def node_id(slug: str, name: str) -> str:
    """The id of a node's row."""
    return element_id("numerics", slug, name)


def chosen_places(facts: NumericsFacts, limit: int) -> Sequence[int]:
    """Places of the worst nodes, as many as may be shown; the first fault is always among them."""
    first = facts.first_fault.block if facts.first_fault else ""
    return pick(len(facts.blocks), limit, lambda place: _badness(facts.blocks[place], first))


def node_tables(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, limit: int) -> Iterator[Table]:
    """What is judged of each node, then the other measures; empty where no node was compared."""
    if not facts.blocks:
        return
    yield settle(_judged(ledger, facts, slug, rest, chosen_places(facts, limit)))
    measured = [place for place in chosen_places(facts, max(10, limit // 4)) if facts.blocks[place].local]
    if measured:
        yield settle(_others(ledger, facts, slug, rest, measured))


def metric_cell(ledger: Ledger, metrics: Metrics | None, base: str, name: str, form: str) -> Cell:
    """One measure; a dash where nothing was compared, `n/a` with the reason where it says nothing."""
    if metrics is None:
        return Cell(_DASH, numeric=True, title="not compared")
    value = getattr(metrics, name)
    why = metrics.not_applicable.get(name)
    if why is not None and math.isnan(float(value)):
        return Cell("n/a", numeric=True, title=f"not applicable: {why}")
    return ledger.cell(f"{base}/{name}", form)


def _badness(node: Node, first: str) -> tuple[int, float]:
    if node.name == first:
        return (-1, 0.0)
    ratio = float(node.local.ratio) if node.local else math.inf
    return (_WEIGHT.get(node.verdict, 0), -(ratio if ratio == ratio else math.inf))


def _judged(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, places: Sequence[int]) -> Table:
    rows = []
    for place in places:
        node, base = facts.blocks[place], f"/blocks/{place}"
        look = LOOK.get(node.verdict, "unverified")
        local = [metric_cell(ledger, node.local, f"{base}/local", name, form) for name, form, *_ in _JUDGED]
        own = [
            metric_cell(ledger, node.propagated, f"{base}/propagated", name, "number")
            for name in ("rel_l2", "ratio")
        ]
        growth = ledger.cell(f"{base}/growth", "number") if node.propagated else Cell(_DASH, numeric=True)
        rows.append(
            Row(
                [
                    Cell(node.name, code=True, status=look, below=node.reason),
                    Cell(node.verdict, whole=True),
                    *local,
                    *own,
                    growth,
                ],
                id=node_id(slug, node.name),
                status=look,
            )
        )
    return Table(
        id=f"numerics--{slug}--nodes",
        caption="Nodes compared",
        columns=[
            Column("Node"),
            Column("Verdict"),
            *(Column(title, True, told) for *_, title, told in _JUDGED),
            Column("Propagated L2", True, "On the target's own stream."),
            Column("Over noise", True, "The same over the noise arm's on its own stream."),
            Column("Growth", True, "Propagated error out over propagated error in."),
        ],
        rows=rows,
        total=len(facts.blocks),
        rest=rest,
        folded=True,
    )


def _others(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, places: Sequence[int]) -> Table:
    rows = []
    for place in places:
        node, base = facts.blocks[place], f"/blocks/{place}"
        measures = [
            metric_cell(ledger, node.local, f"{base}/local", name, form) for name, form, *_ in _OTHERS
        ]
        rows.append(
            Row(
                [
                    Cell(node.name, code=True, below=node.role),
                    *measures,
                    ledger.cell(f"{base}/largest", "number"),
                    ledger.cell(f"{base}/headroom", "number"),
                    _band(ledger, node, base),
                ]
            )
        )
    return Table(
        id=f"numerics--{slug}--measures",
        caption="Other measures of each node, on the reference's input",
        columns=[
            Column("Node"),
            *(Column(title, True, told) for *_, title, told in _OTHERS),
            Column("Largest", True, "Largest magnitude of the reference's output."),
            Column("Of the range", True, "The same over the largest number of the target's dtype."),
            Column("Run to run", True, "Relative L2 between two runs of the target on the same input."),
        ],
        rows=rows,
        total=sum(node.local is not None for node in facts.blocks),
        rest=rest,
        folded=True,
    )


def _band(ledger: Ledger, node: Node, base: str) -> Cell:
    if node.bit_stable is None:
        return Cell(_DASH, numeric=True, title="the target ran once")
    return Cell("equal", numeric=True) if node.bit_stable else ledger.cell(f"{base}/band", "number")
