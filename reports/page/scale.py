"""The scale section: how far up the tiers the target holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.scale.record import Check, ScaleFacts, ScaleRecord

from ..model import Report, TargetResult
from ..words import exact_text, plural
from .blocks import absent_block, reused, target_slug, why_nothing
from .growth_figure import growth_drawing
from .ledger import Ledger
from .parts import Block, Cell, Column, Figure, Key, Row, Section, Stat, Table, settle
from .text import element_id

TIER_LOOK = {"passed": "pass", "failed": "fail", "could_not_run": "unverified", "not_reached": "blocked"}
_LOG_LINES = 30


def scale_section(report: Report, limit: int) -> Section:
    """Tiers, collectives and growth; a block for each target."""
    about = (
        "Device compute, two processes, all devices, then batch and length; a failed tier stops those above."
    )
    blocks = [
        _block(report, index, result, result.stages.scale, limit)
        if result.stages.scale
        else absent_block("scale", result)
        for index, result in enumerate(report.targets)
    ]
    return Section(id="stage-scale", title="Scale", about=about, blocks=blocks)


def _block(report: Report, index: int, result: TargetResult, record: ScaleRecord, limit: int) -> Block:
    ledger, slug = Ledger(record), target_slug(result)
    failed = record.verdict not in ("pass", "warn")
    return Block(
        id=f"scale--{slug}",
        title=result.target,
        verdict=record.verdict,
        lead=_lead(record.facts) if record.facts.tiers else why_nothing(record, "No tier was tried."),
        stats=_stats(ledger, record),
        figures=_figures(record, slug),
        tables=[settle(table) for table in _tables(ledger, record, slug, index, limit) if table.rows],
        log=record.observations.worker_log[-_LOG_LINES:] if failed else (),
        sources=ledger.sources,
        reused=reused(report, "scale", result),
    )


def _lead(facts: ScaleFacts) -> str:
    passed = [tier for tier in facts.tiers if tier.outcome == "passed"]
    stopped = next((tier for tier in facts.tiers if tier.outcome != "passed"), None)
    if stopped is None:
        return f"All {plural(len(passed), 'tier')} passed."
    count = f"{exact_text(len(passed))} of {plural(len(facts.tiers), 'tier')} passed"
    return f"{count}; the first that did not is tier {stopped.number}, {stopped.name}."


def _stats(ledger: Ledger, record: ScaleRecord) -> Sequence[Stat]:
    seen = record.observations
    stats = []
    if seen.device_flops:
        cell = ledger.measured(seen.device_flops / 1e9, "number")
        stats.append(Stat("Compute", cell, "GFLOP/s, matrix product"))
    if seen.growth:
        best = max(point.tokens_per_second for point in seen.growth)
        layers = plural(seen.growth[0].layers, "layer")
        stats.append(Stat("Throughput", ledger.measured(best, "number"), f"tokens/s at best, {layers}"))
        first = min(point.first_token_seconds for point in seen.growth)
        stats.append(Stat("First token", ledger.measured(first, "seconds"), "at best"))
    return stats


def _figures(record: ScaleRecord, slug: str) -> Sequence[Figure]:
    drawing = growth_drawing(record.observations.growth)
    if drawing is None:
        return ()
    return [
        Figure(
            id=f"scale--{slug}--growth",
            caption="Memory of each point, against what config and header bytes foretold before the run.",
            svg=drawing,
            legend=[Key("k-local", "measured"), Key("k-limit", "expected")],
        )
    ]


def _tables(ledger: Ledger, record: ScaleRecord, slug: str, index: int, limit: int) -> Iterable[Table]:
    yield _tier_table(record.facts, slug)
    yield _growth_table(ledger, record, slug)
    yield _bandwidth_table(ledger, record, slug, limit)


def _tier_table(facts: ScaleFacts, slug: str) -> Table:
    rows = []
    for tier in facts.tiers:
        look = TIER_LOOK.get(tier.outcome, "unverified")
        told = f"{tier.number}. {tier.name}"
        shown: Sequence[Check | None] = tier.checks or [None]
        for place, check in enumerate(shown):
            rows.append(
                Row(
                    [
                        Cell(told if place == 0 else "", status=look if place == 0 else ""),
                        Cell(check.name if check else "", code=True),
                        Cell((check.outcome if check else tier.outcome).replace("_", " ")),
                        Cell(check.detail if check else ""),
                    ],
                    id=element_id("scale", slug, f"tier-{tier.number}") if place == 0 else "",
                    status=TIER_LOOK.get(check.outcome, "unverified") if check else look,
                )
            )
    return Table(
        id=f"scale--{slug}--tiers",
        caption="Tiers and their checks",
        columns=[Column("Tier"), Column("Check"), Column("Outcome"), Column("Detail")],
        rows=rows,
        folded=len(rows) > 16,
    )


def _growth_table(ledger: Ledger, record: ScaleRecord, slug: str) -> Table:
    rows = []
    for point in record.observations.growth:
        rows.append(
            Row(
                [
                    Cell(exact_text(point.batch), numeric=True),
                    Cell(exact_text(point.length), numeric=True),
                    Cell(exact_text(point.new_tokens), numeric=True),
                    ledger.measured(point.first_token_seconds, "seconds"),
                    _expected(ledger, point.expected_first_token_seconds),
                    ledger.measured(point.tokens_per_second, "number"),
                    ledger.measured(point.memory_bytes, "bytes"),
                    ledger.derived(
                        point.expected_memory_bytes, "bytes", "from config and header bytes, before the run"
                    ),
                ]
            )
        )
    return Table(
        id=f"scale--{slug}--points",
        caption="Batch and length",
        columns=[
            Column("Batch", True),
            Column("Prompt tokens", True),
            Column("New tokens", True),
            Column("First token", True),
            Column("Expected", True),
            Column("Tokens/s", True),
            Column("Memory", True),
            Column("Expected", True),
        ],
        rows=rows,
    )


def _expected(ledger: Ledger, seconds: float) -> Cell:
    if not seconds:
        return Cell("unknown", numeric=True)
    return ledger.derived(seconds, "seconds", "its products at the speed of the known-answer product")


def _bandwidth_table(ledger: Ledger, record: ScaleRecord, slug: str, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(item.name, code=True),
                Cell(exact_text(item.world_size), numeric=True),
                Cell(exact_text(item.bytes), numeric=True),
                ledger.measured(item.seconds, "seconds"),
                ledger.measured(item.bus_bytes_per_second, "bytes"),
                Cell(exact_text(item.samples), numeric=True),
            ]
        )
        for item in record.observations.bandwidths[:limit]
    ]
    return Table(
        id=f"scale--{slug}--bandwidths",
        caption="Collectives, data-checked (median of the samples)",
        columns=[
            Column("Collective"),
            Column("Ranks", True),
            Column("Bytes", True),
            Column("Time", True),
            Column("Bus bandwidth per second", True),
            Column("Samples", True),
        ],
        rows=rows,
        folded=True,
    )
