"""The numerics section: how far each node of the target is from the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record import NumericsFacts, NumericsRecord

from ..model import Report, TargetResult
from ..words import exact_text, number_text, plural
from .blocks import absent_block, reused, target_slug, why_nothing
from .depth_figure import error_figure, gain_figure
from .ledger import Ledger
from .limits import pick
from .parts import Block, Cell, Column, Figure, Quote, Row, Section, Stat, Table, settle
from .text import element_id

_LOOK = {"pass": "pass", "fail": "fail", "inherited": "warn", "unverified": "unverified"}
_WEIGHT = {"fail": 0, "unverified": 1, "inherited": 2, "pass": 3}
_LOG_LINES = 30


def numerics_section(report: Report, limit: int) -> Section:
    """Error by depth, agreement at the output, what each side says; a block for each target."""
    about = (
        "Every node of the whole model against the reference, in units of the rounding noise that "
        "the target's own precision explains."
    )
    blocks = [
        _block(report, index, result, result.stages.numerics, limit)
        if result.stages.numerics
        else absent_block("numerics", result)
        for index, result in enumerate(report.targets)
    ]
    return Section(id="stage-numerics", title="Numerics", about=about, blocks=blocks)


def node_id(slug: str, name: str) -> str:
    """The id of a node's row."""
    return element_id("numerics", slug, name)


def _block(report: Report, index: int, result: TargetResult, record: NumericsRecord, limit: int) -> Block:
    ledger, facts, slug = Ledger(record), record.facts, target_slug(result)
    failed = record.verdict not in ("pass", "warn")
    quotes: Sequence[Quote] = ()
    if facts.says is not None:
        quotes = (
            Quote("Prompt", facts.says.prompt),
            Quote("Reference", facts.says.reference),
            Quote("Target", facts.says.target),
        )
    return Block(
        id=f"numerics--{slug}",
        title=result.target,
        verdict=record.verdict,
        lead=_lead(facts) if facts.blocks else why_nothing(record, "No node was compared."),
        stats=_stats(ledger, record) if facts.blocks else (),
        quotes=quotes,
        figures=_figures(facts, slug, limit),
        tables=[settle(table) for table in _tables(ledger, facts, slug, index, limit)],
        log=record.observations.worker_log[-_LOG_LINES:] if failed else (),
        sources=ledger.sources,
        reused=reused(report, "numerics", result),
    )


def _lead(facts: NumericsFacts) -> str:
    fault = facts.first_fault
    held = f"held against {facts.reference}, noise from {facts.noise}"
    if fault is not None:
        return (
            f"{fault.block} is the first node beyond tolerance by itself: {fault.metric} "
            f"{number_text(fault.value)}, allowed {number_text(fault.tolerance)}; {held}."
        )
    good = sum(node.verdict == "pass" for node in facts.blocks)
    return f"{exact_text(good)} of {plural(len(facts.blocks), 'node')} within tolerance; {held}."


def _stats(ledger: Ledger, record: NumericsRecord) -> Sequence[Stat]:
    facts, seen = record.facts, record.observations
    stats = [Stat("Tokens", ledger.cell("/tokens", "exact"), "compared at every node")]
    if facts.logits is not None:
        over = f"over {plural(facts.logits.positions, 'position')}"
        stats += [
            Stat("Top-1 agreement", ledger.cell("/logits/top1", "percent"), over),
            Stat("Top-5 overlap", ledger.cell("/logits/top5", "percent"), "mean"),
            Stat("KL divergence", ledger.cell("/logits/kl", "number"), "nats, mean"),
            Stat("Decisive differences", ledger.cell("/logits/decisive", "exact"), "beyond the noise"),
        ]
    if seen.peak_bytes:
        stats.append(Stat("Peak memory", ledger.measured(seen.peak_bytes, "bytes"), "process tree"))
    if seen.seconds:
        stats.append(Stat("Time", ledger.measured(seen.seconds, "seconds"), "of the comparison"))
    return stats


def _figures(facts: NumericsFacts, slug: str, limit: int) -> Sequence[Figure]:
    shown = {facts.blocks[place].name for place in _chosen(facts, limit)}

    def row_of(name: str) -> str:
        return node_id(slug, name) if name in shown else ""

    drawn = (
        error_figure(facts.blocks, f"numerics--{slug}--error", row_of),
        gain_figure(facts.blocks, f"numerics--{slug}--gain", row_of),
    )
    return [figure for figure in drawn if figure is not None]


def _chosen(facts: NumericsFacts, limit: int) -> Sequence[int]:
    return pick(len(facts.blocks), limit, lambda place: _badness(facts.blocks[place]))


def _badness(node: Node) -> tuple[int, float]:
    ratio = float(node.local.ratio) if node.local else float("inf")
    return (_WEIGHT.get(node.verdict, 0), -(ratio if ratio == ratio else float("inf")))


def _tables(ledger: Ledger, facts: NumericsFacts, slug: str, index: int, limit: int) -> Iterable[Table]:
    if not facts.blocks:
        return
    rows = [
        Row(
            [
                Cell(node.name, code=True, status=_LOOK.get(node.verdict, "unverified")),
                Cell(f"{node.verdict}: {node.reason}" if node.reason else node.verdict),
                *_metric_cells(ledger, node, place),
            ],
            id=node_id(slug, node.name),
            status=_LOOK.get(node.verdict, "unverified"),
        )
        for place, node in ((place, facts.blocks[place]) for place in _chosen(facts, limit))
    ]
    yield Table(
        id=f"numerics--{slug}--nodes",
        caption="Nodes compared",
        columns=[
            Column("Node"),
            Column("Verdict"),
            Column("Relative L2", True, "Local: the node alone, on the reference's input."),
            Column("Over noise", True, "Relative L2 over that of the reference in the target's precision."),
            Column("Gain score", True, "Mean gain over its standard error in the noise arm."),
            Column("1 - cosine", True),
            Column("Max. difference", True),
            Column("NaN, infinity", True),
            Column("Propagated L2", True, "On the target's own stream."),
            Column("Growth", True, "Propagated error out over propagated error in."),
        ],
        rows=rows,
        total=len(facts.blocks),
        rest=f"report.json#/targets/{index}/stages/numerics/facts/blocks",
        folded=True,
    )


def _metric_cells(ledger: Ledger, node: Node, place: int) -> Sequence[Cell]:
    dash = Cell("\N{EN DASH}", numeric=True, title="not compared")
    base = f"/blocks/{place}"
    local = [
        ledger.cell(f"{base}/local/{name}", form) if node.local else dash
        for name, form in (
            ("rel_l2", "number"),
            ("ratio", "number"),
            ("gain_score", "number"),
            ("cosine", "gap"),
            ("max_abs", "number"),
            ("nonfinite", "exact"),
        )
    ]
    propagated = ledger.cell(f"{base}/propagated/rel_l2", "number") if node.propagated else dash
    return [*local, propagated, ledger.cell(f"{base}/growth", "number")]
