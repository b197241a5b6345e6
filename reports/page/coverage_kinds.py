"""The coverage section's tables of kinds: whether one node of each compiles and runs, and in which sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.tasks.coverage.record import CoverageFacts
from day0.tasks.coverage.record_kinds import KindCompile, KindSeconds

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


def kind_table(ledger: Ledger, facts: CoverageFacts, seconds: Sequence[KindSeconds], slug: str) -> Table:
    """One row a kind and phase: outcome, deviation, operators before, kernels after, and what it took."""
    rows = []
    took = {(one.node, one.phase): one for one in seconds}
    for place, kind in enumerate(facts.kinds):
        look = "pass" if kind.outcome == "ran" else "unverified" if kind.outcome == "not_run" else "fail"
        at = f"/kinds/{place}"
        before = ledger.derived(sum(kind.operators.values()), "exact", "sum", f"{at}/operators")
        after = ledger.derived(sum(kind.kernels.values()), "exact", "sum", f"{at}/kernels")
        times = took.get((kind.node, kind.phase))
        named = " ".join(part for part in (kind.op, kind.dtype, kind.shape) if part)
        rows.append(
            Row(
                [
                    Cell(kind.node, code=True, status=look, below=kind.phase),
                    ledger.cell(f"{at}/nodes", "exact"),
                    Cell(kind.outcome, whole=True, below=kind.grade if kind.grade == "inherited" else ""),
                    ledger.cell(f"{at}/deviation", "number"),
                    before if kind.operators else Cell(""),
                    after if kind.kernels else Cell(""),
                    ledger.measured(times.compile, "seconds") if times else Cell(""),
                    ledger.measured(times.run, "seconds") if times else Cell(""),
                    Cell("; ".join(_remarks(kind)), below=f"the error names {named}" if named else ""),
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
            Column("Outcome"),
            Column("Deviation", True, help="relative L2 from the CPU in the same dtype"),
            Column("Operators", True, help="in the graph that the compiler was given"),
            Column("Kernels", True, help="executed in their place"),
            Column("Compiling", True, help="until the first answer, when it was compiled"),
            Column("Running", True, help="of the execution alone"),
            Column("Detail"),
        ],
        rows=rows,
        folded=len(rows) > _UNFOLDED,
    )


def _remarks(kind: KindCompile) -> Iterator[str]:
    if kind.reduced:
        yield f"with {kind.reduced}"
    if kind.detail:
        yield kind.detail
    if kind.breaks:
        yield listed(list(kind.breaks), 2)


def size_table(ledger: Ledger, facts: CoverageFacts, slug: str) -> Table:
    """One row a kind: whether one graph serves other sizes, and which of them run at all."""
    rows = []
    for place, kind in enumerate(facts.dynamic):
        failures = [f"{one.case}: {one.outcome}" for one in kind.failures]
        look = _ANSWERS.get(kind.answer, "unverified")
        rows.append(
            Row(
                [
                    Cell(kind.node, code=True, status=look),
                    Cell(kind.answer, whole=True, below=kind.grade if kind.grade == "inherited" else ""),
                    ledger.cell(f"/dynamic/{place}/graphs", "exact"),
                    Cell(listed(list(kind.recompiled), 3) if kind.recompiled else ""),
                    Cell(listed(failures, 3) if failures else ""),
                    Cell(listed(list(kind.ran), 20) if kind.ran else ""),
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
            Column("Ran"),
            Column("Why"),
        ],
        rows=rows,
        folded=len(rows) > _UNFOLDED,
    )
