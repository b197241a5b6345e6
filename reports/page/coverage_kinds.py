"""The coverage section's tables of kinds: whether one node of each compiles and runs, and in which sizes."""

from __future__ import annotations

from day0.tasks.coverage.record import CoverageFacts

from ..words import listed
from .ledger import Ledger
from .parts import Cell, Column, Row, Table

_ANSWERS = {
    "dynamic": "pass",
    "static": "warn",
    "fallback": "warn",
    "failed": "fail",
    "unknown": "unverified",
}
_UNFOLDED = 12


def kind_table(ledger: Ledger, facts: CoverageFacts, slug: str) -> Table:
    """One row a kind and phase: outcome, deviation, operators before and kernels after."""
    rows = []
    for place, kind in enumerate(facts.kinds):
        look = "pass" if kind.outcome == "ran" else "unverified" if kind.outcome == "not_run" else "fail"
        at = f"/kinds/{place}"
        before = ledger.derived(sum(kind.operators.values()), "exact", "sum", f"{at}/operators")
        after = ledger.derived(sum(kind.kernels.values()), "exact", "sum", f"{at}/kernels")
        named = " ".join(part for part in (kind.op, kind.dtype, kind.shape) if part)
        rows.append(
            Row(
                [
                    Cell(kind.node, code=True, status=look),
                    ledger.cell(f"{at}/nodes", "exact"),
                    Cell(kind.phase),
                    Cell(kind.outcome),
                    ledger.cell(f"{at}/deviation", "number"),
                    before if kind.operators else Cell(""),
                    after if kind.kernels else Cell(""),
                    Cell(named, code=True),
                    Cell(kind.detail or listed(list(kind.breaks), 2) if kind.detail or kind.breaks else ""),
                ],
                status="" if look == "pass" else look,
            )
        )
    return Table(
        id=f"coverage--{slug}--kinds",
        caption="One node of each kind, compiled and run with random weights",
        columns=[
            Column("Node"),
            Column("Of its kind", True, help="nodes that share this graph"),
            Column("Phase"),
            Column("Outcome"),
            Column("Deviation", True, help="relative L2 from the CPU in the same dtype"),
            Column("Operators", True, help="in the graph that the compiler was given"),
            Column("Kernels", True, help="executed in their place"),
            Column("Named by the error"),
            Column("Detail"),
        ],
        rows=rows,
        folded=len(rows) > _UNFOLDED,
    )


def size_table(ledger: Ledger, facts: CoverageFacts, slug: str) -> Table:
    """One row a kind: whether one graph serves other lengths, batches and paddings."""
    rows = []
    for place, kind in enumerate(facts.dynamic):
        failures = [f"{one.case}: {one.outcome}" for one in kind.failures]
        look = _ANSWERS.get(kind.answer, "unverified")
        rows.append(
            Row(
                [
                    Cell(kind.node, code=True, status=look),
                    Cell(kind.answer),
                    ledger.cell(f"/dynamic/{place}/graphs", "exact"),
                    Cell(listed(list(kind.recompiled), 3) if kind.recompiled else ""),
                    Cell(listed(failures, 3) if failures else ""),
                    Cell(kind.fixed or (listed(list(kind.untested), 2) if kind.untested else "")),
                ],
                status="" if look == "pass" else look,
            )
        )
    return Table(
        id=f"coverage--{slug}--dynamic",
        caption="Sizes that vary",
        columns=[
            Column("Node"),
            Column("Answer"),
            Column("Graphs", True, help="compiled over all cases"),
            Column("Compiled anew for"),
            Column("Failed"),
            Column("Why"),
        ],
        rows=rows,
        folded=len(rows) > _UNFOLDED,
    )
