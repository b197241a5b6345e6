"""The coverage section: which operators the model needs and what the target makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.coverage.record import CoverageFacts, CoverageRecord, CoveredOp

from ..model import Report, TargetResult
from ..words import exact_text, listed, percent_text, plural
from .bars_figure import Bar, Part, stacked_bars
from .blocks import absent_block, reused, target_slug, why_nothing
from .ledger import Ledger
from .limits import pick
from .parts import Block, Cell, Column, Figure, Key, Row, Section, Stat, Table, settle
from .text import element_id

# Status of an operator -> the verdict whose colour and shape it takes, best first.
STATUS_LOOK = {
    "native": "pass",
    "decomposed": "pass",
    "fallback": "warn",
    "slow": "warn",
    "unknown": "unverified",
    "double_fault": "fail",
    "missing": "fail",
    "wrong": "fail",
    "crash": "fail",
    "hang": "fail",
}
_ORDER = list(STATUS_LOOK)


def coverage_section(report: Report, limit: int) -> Section:
    """Status of every operator, a block for each target."""
    about = "Every operator the model calls, captured from its config, and what the target was seen to do."
    blocks = [
        _block(report, index, result, result.stages.coverage, limit)
        if result.stages.coverage
        else absent_block("coverage", result)
        for index, result in enumerate(report.targets)
    ]
    return Section(id="stage-coverage", title="Coverage", about=about, blocks=blocks)


def _block(report: Report, index: int, result: TargetResult, record: CoverageRecord, limit: int) -> Block:
    ledger, facts, slug = Ledger(record), record.facts, target_slug(result)
    return Block(
        id=f"coverage--{slug}",
        title=result.target,
        verdict=record.verdict,
        lead=_lead(facts) if facts.ops else why_nothing(record, "No operator was captured."),
        stats=_stats(ledger, record) if facts.ops else (),
        figures=[_bar(facts, slug)] if facts.ops else (),
        tables=[settle(table) for table in _tables(ledger, facts, slug, index, limit)],
        sources=ledger.sources,
        reused=reused(report, "coverage", result),
    )


def _lead(facts: CoverageFacts) -> str:
    safe = sum(facts.statuses.get(status, 0) for status in ("native", "decomposed"))
    total = sum(facts.statuses.values())
    if not facts.gaps:
        return f"The target has all {plural(total, 'operator')}."
    worst = facts.gaps[0]
    gap = f"{worst.op} ({worst.status}, {percent_text(worst.impact)})"
    count = f"{exact_text(safe)} of {plural(total, 'operator')}"
    return f"The target has {count}; the gap with the largest share of work is {gap}."


def _stats(ledger: Ledger, record: CoverageRecord) -> Sequence[Stat]:
    stats = [
        Stat("Operators", ledger.cell("/overloads", "exact"), "distinct overloads"),
        Stat("Calls", ledger.cell("/signatures", "exact"), "distinct signatures"),
    ]
    at_risk = sum(float(gap.impact) for gap in record.facts.gaps)
    cell = ledger.derived(at_risk, "percent", "sum of the gaps' shares", "/gaps")
    stats.append(Stat("Work at risk", cell, f"in {plural(len(record.facts.gaps), 'gap')}"))
    if record.observations.probed:
        probed = ledger.measured(record.observations.probed, "exact")
        stats.append(Stat("Probed now", probed, "by running them"))
    return stats


def _bar(facts: CoverageFacts, slug: str) -> Figure:
    present = [status for status in _ORDER if facts.statuses.get(status)]
    present += sorted(set(facts.statuses) - set(_ORDER))
    by_work = {status: 0.0 for status in present}
    for op in facts.ops:
        by_work[op.status] = by_work.get(op.status, 0.0) + float(op.impact)
    bars = [
        Bar("operators", [Part(f"st-{s}", facts.statuses[s], f"{s}: {facts.statuses[s]}") for s in present]),
        Bar("work", [Part(f"st-{s}", by_work[s], f"{s}: {percent_text(by_work[s])}") for s in present]),
    ]
    return Figure(
        id=f"coverage--{slug}--bar",
        caption="Operators by status, counted and weighed by their share of the work.",
        svg=stacked_bars(bars, "Operators by status", margin=110),
        legend=[Key(f"k-st-{status}", f"{status} {facts.statuses[status]}") for status in present],
    )


def _tables(ledger: Ledger, facts: CoverageFacts, slug: str, index: int, limit: int) -> Iterable[Table]:
    if facts.gaps:
        yield _gap_table(ledger, facts, slug, index, limit)
    if facts.ops:
        yield _op_table(ledger, facts, slug, index, limit)
    for name, title in (
        ("kernels", "Kernels outside the dispatcher"),
        ("new_since_registry", "New to the registry"),
    ):
        names = getattr(facts, name)
        if names:
            yield Table(
                id=f"coverage--{slug}--{name}",
                caption=title,
                columns=[Column("Name")],
                rows=[Row([Cell(item, code=True)]) for item in names[:limit]],
                total=len(names),
                rest=_where(index, name),
                folded=True,
            )


def _gap_table(ledger: Ledger, facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(gap.op, code=True, status=_look(gap.status)),
                Cell(",".join(gap.dtypes), code=True),
                Cell(gap.status),
                ledger.cell(f"/gaps/{place}/impact", "percent"),
                Cell(gap.workaround or "none known", code=bool(gap.workaround)),
                Cell(gap.evidence),
            ],
            id=element_id("coverage", slug, "gap", gap.op, ",".join(gap.dtypes)),
            status=_look(gap.status),
        )
        for place, gap in enumerate(facts.gaps[:limit])
    ]
    return Table(
        id=f"coverage--{slug}--gaps",
        caption="Gaps, the largest share of work first",
        columns=[
            Column("Operator"),
            Column("Dtypes"),
            Column("Status"),
            Column("Share of work", True),
            Column("Way around"),
            Column("Evidence"),
        ],
        rows=rows,
        total=len(facts.gaps),
        rest=_where(index, "gaps"),
        folded=len(rows) > 12,
    )


def _op_table(ledger: Ledger, facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    chosen = pick(len(facts.ops), limit, lambda place: _badness(facts.ops[place]))
    rows = []
    for place in chosen:
        op = facts.ops[place]
        rows.append(
            Row(
                [
                    Cell(op.op, code=True, status=_look(op.status)),
                    Cell(",".join(op.dtypes), code=True),
                    Cell(op.status),
                    Cell(op.grade),
                    ledger.cell(f"/ops/{place}/calls", "exact"),
                    ledger.cell(f"/ops/{place}/impact", "percent"),
                    Cell(listed(list(op.phases), 4)),
                    Cell(op.module, code=True),
                ],
                id=element_id("coverage", slug, op.op, ",".join(op.dtypes)),
            )
        )
    return Table(
        id=f"coverage--{slug}--ops",
        caption="All operators",
        columns=[
            Column("Operator"),
            Column("Dtypes"),
            Column("Status"),
            Column("Evidence"),
            Column("Calls", True),
            Column("Share of work", True),
            Column("Phases"),
            Column("First called in"),
        ],
        rows=rows,
        total=len(facts.ops),
        rest=_where(index, "ops"),
        folded=True,
    )


def _badness(op: CoveredOp) -> tuple[int, float]:
    rank = _ORDER.index(op.status) if op.status in _ORDER else len(_ORDER)
    return (-rank, -float(op.impact))


def _look(status: str) -> str:
    return STATUS_LOOK.get(status, "unverified")


def _where(index: int, name: str) -> str:
    return f"report.json#/targets/{index}/stages/coverage/facts/{name}"
