"""The coverage section: which operators the model needs and what the target makes of each."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.coverage.record import CoverageFacts, CoverageRecord

from ..model import Report, TargetResult
from ..words import exact_text, listed, percent_text, plural
from .bars_figure import Bar, Part, stacked_bars
from .blocks import absent_block, reused, target_slug, why_nothing
from .coverage_tables import STATUS_LOOK, coverage_tables, passages
from .ledger import Ledger
from .parts import Block, Figure, Key, Section, Stat, settle

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
        tables=[settle(table) for table in coverage_tables(ledger, record, slug, index, limit)],
        passages=passages(facts, slug),
        sources=ledger.sources,
        reused=reused(report, "coverage", result),
    )


def _lead(facts: CoverageFacts) -> str:
    """What is new, then the gap, then what was chosen to get around it."""
    total = sum(facts.statuses.values())
    new = len(facts.new_since_registry)
    told = (
        f"{plural(new, 'operator')} of {exact_text(total)} new to the registry" if new else "Nothing is new"
    )
    first = f"{told}: {listed(list(facts.new_since_registry))}." if new else f"{told} to the registry."
    if not facts.gaps:
        return f"{first} The target has all {plural(total, 'operator')}."
    worst = facts.gaps[0]
    native = facts.statuses.get("native", 0)
    count = f"{exact_text(native)} of {plural(total, 'operator')}"
    gap = f"{worst.op} ({worst.status}, {percent_text(worst.impact)})"
    said = f"{first} The target has {count}; the gap with the largest share of work is {gap}."
    if facts.chosen:
        said += f" Later stages run with {listed([one.id for one in facts.chosen])}."
    return said


def _stats(ledger: Ledger, record: CoverageRecord) -> Sequence[Stat]:
    new = ledger.derived(len(record.facts.new_since_registry), "exact", "count", "/new_since_registry")
    stats = [
        Stat("New", new, "operators the registry had no row for"),
        Stat("Operators", ledger.cell("/overloads", "exact"), "distinct overloads"),
        Stat("Calls", ledger.cell("/signatures", "exact"), "distinct signatures"),
    ]
    open_ = [gap for gap in record.facts.gaps if not gap.checked]
    at_risk = sum(float(gap.impact) for gap in open_)
    cell = ledger.derived(at_risk, "percent", "sum of the shares of gaps without a tried way around", "/gaps")
    stats.append(Stat("Work at risk", cell, f"in {plural(len(open_), 'gap')}"))
    around = len(record.facts.gaps) - len(open_)
    if around:
        cell = ledger.derived(around, "exact", "count of gaps with a tried way around", "/gaps")
        stats.append(Stat("Got around", cell, "gaps whose way around ran here"))
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
