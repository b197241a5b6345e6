"""The plan section: which configuration fits where."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.plan.record import Config, PlanFacts, PlanRecord

from ..model import Report, TargetResult
from ..words import bytes_text, exact_text, listed, plural
from .bars_figure import Bar, Part, stacked_bars
from .blocks import absent_block, reused, why_nothing
from .ledger import Ledger
from .parts import Block, Cell, Column, Figure, Key, Row, Section, Table, settle

_CAPTIONS = {
    "recommended": "Recommended",
    "alternatives": "Alternatives that hold the model and keep every rule",
    "rejected": "Rejected, and why",
}
_FIT_LOOK = {"fits": "pass", "tight": "warn", "no": "fail"}


def plan_section(report: Report, limit: int) -> Section:
    """Configurations per chip; targets that share one plan share one block."""
    blocks: list[Block] = []
    seen: list[PlanRecord] = []
    for index, result in enumerate(report.targets):
        record = result.stages.plan
        if record is None:
            blocks.append(absent_block("plan", result))
        elif all(record.facts != other.facts for other in seen):
            seen.append(record)
            blocks.append(_block(report, index, result, record, limit))
    about = "What fits where, from exact checkpoint and cache bytes. Estimates: nothing was measured here."
    return Section(id="stage-plan", title="Plan", about=about, blocks=blocks)


def _block(report: Report, index: int, result: TargetResult, record: PlanRecord, limit: int) -> Block:
    ledger, facts = Ledger(record), record.facts
    suffix = "" if index == 0 else f"--{index}"
    tables = [
        _table(ledger, configs, field, f"plan{suffix}--{field}", index, limit)
        for field, configs in (
            ("recommended", facts.recommended),
            ("alternatives", facts.alternatives),
            ("rejected", facts.rejected),
        )
    ]
    planned = bool(facts.recommended or facts.rejected)
    tables.append(_chip_table(ledger, facts, f"plan{suffix}--chips"))
    return Block(
        id=f"plan{suffix}",
        title="",
        verdict=record.verdict,
        lead=_lead(facts) if planned else why_nothing(record, "Nothing was planned."),
        figures=[_memory(facts.recommended, f"plan{suffix}--memory")] if facts.recommended else (),
        tables=[settle(table) for table in tables if table.rows],
        sources=ledger.sources,
        reused=report.reused.get("plan", reused(report, "plan", result)),
    )


def _lead(facts: PlanFacts) -> str:
    fitting = [config for config in facts.recommended if config.fits != "no"]
    chips = listed([config.chip for config in fitting], 5)
    told = f"Fits on {chips}" if fitting else "Fits on no chip that was looked at"
    return f"{told}; {plural(len(facts.rejected), 'configuration')} rejected, with the arithmetic below."


def name_of(config: Config) -> str:
    """`2 x H100-80GB`."""
    return f"{config.devices} \N{MULTIPLICATION SIGN} {config.chip}"


def _cache_bytes(config: Config) -> int:
    held = config.kv_bytes_per_token * config.max_context + config.state_bytes_per_sequence
    return held * max(config.concurrency, 1)


def _memory(configs: Sequence[Config], figure_id: str) -> Figure:
    bars = []
    for config in configs:
        parts = (("c0", config.weight_bytes, "weights"), ("c2", _cache_bytes(config), "cache"))
        bars.append(
            Bar(
                name_of(config),
                [
                    *(Part(css, share, f"{words}: {bytes_text(share)}") for css, share, words in parts),
                    Part("c7", config.reserve_bytes, f"reserve: {bytes_text(config.reserve_bytes)}"),
                ],
                bytes_text(config.memory_bytes),
            )
        )
    scaled = [
        Bar(
            bar.label,
            [Part(p.css, p.amount / (config.memory_bytes or 1), p.title) for p in bar.parts],
            bar.remark,
        )
        for bar, config in zip(bars, configs, strict=True)
    ]
    return Figure(
        id=figure_id,
        caption="Memory of the fullest device: weights, cache at the recommended concurrency and length, "
        "reserve; the bar's width is what the device has.",
        svg=stacked_bars(scaled, f"Memory of {plural(len(configs), 'configuration')}", whole=1.0, margin=190),
        legend=[Key("k-c0", "weights"), Key("k-c2", "cache"), Key("k-c7", "reserve"), Key("k-track", "free")],
    )


def _table(
    ledger: Ledger, configs: Sequence[Config], field: str, table_id: str, index: int, limit: int
) -> Table:
    rows = []
    for place, config in enumerate(configs[:limit]):
        at = f"/{field}/{place}"
        rows.append(
            Row(
                [
                    Cell(name_of(config), status=_FIT_LOOK.get(config.fits, "unverified")),
                    Cell(_parallel(config)),
                    Cell(f"{config.weight_dtype}, KV {config.kv_dtype}"),
                    ledger.cell(f"{at}/weight_bytes", "bytes"),
                    ledger.cell(f"{at}/memory_bytes", "bytes"),
                    ledger.cell(f"{at}/max_context", "exact"),
                    ledger.cell(f"{at}/concurrency", "exact"),
                    Cell(config.limited_by),
                    Cell(_rules(config)),
                ]
            )
        )
    return Table(
        id=table_id,
        caption=_CAPTIONS[field],
        columns=[
            Column("Devices"),
            Column("Parallel"),
            Column("Dtypes"),
            Column("Weights each", True),
            Column("Memory each", True),
            Column("Context", True),
            Column("Sequences", True),
            Column("Limited by"),
            Column("Rules"),
        ],
        rows=rows,
        total=len(configs),
        rest=f"report.json#/targets/{index}/stages/plan/facts/{field}",
        folded=field != "recommended",
    )


def _chip_table(ledger: Ledger, facts: PlanFacts, table_id: str) -> Table:
    rows = []
    for place, chip in enumerate(facts.chips):
        at = f"/chips/{place}"
        rows.append(
            Row(
                [
                    Cell(chip.name),
                    ledger.cell(f"{at}/memory_bytes", "bytes"),
                    Cell("vendor's figure" if chip.nominal else "as a driver reports"),
                    ledger.cell(f"{at}/devices_per_node", "exact"),
                    _rate(ledger, f"{at}/memory_bandwidth", chip.memory_bandwidth),
                    _rate(ledger, f"{at}/link_bandwidth", chip.link_bandwidth),
                ]
            )
        )
    return Table(
        id=table_id,
        caption="Chips planned with",
        columns=[
            Column("Chip"),
            Column("Memory", True),
            Column("Kind of figure"),
            Column("In a node", True),
            Column("Memory bandwidth per second", True),
            Column("Link bandwidth per second", True),
        ],
        rows=rows,
        folded=True,
    )


def _rate(ledger: Ledger, pointer: str, value: float) -> Cell:
    if not value:
        return Cell("no trusted source", numeric=True)
    return ledger.cell(pointer, "bytes")


def _parallel(config: Config) -> str:
    degrees = (
        ("TP", config.tensor_parallel),
        ("PP", config.pipeline_parallel),
        ("EP", config.expert_parallel),
    )
    return " ".join(f"{name}{degree}" for name, degree in degrees if degree > 1 or name == "TP")


def _rules(config: Config) -> str:
    broken = [f"{rule.rule} broken: {rule.arithmetic}" for rule in config.rules if not rule.holds]
    kept = [rule.rule for rule in config.rules if rule.holds]
    return "; ".join(broken) or (f"{listed(kept, 5)} kept" if kept else "none applies")


def config_facts(config: Config) -> Sequence[tuple[str, str]]:
    """The few facts of a recommended configuration that decide."""
    facts = [
        ("Parallel", _parallel(config)),
        ("Weights", f"{bytes_text(config.weight_bytes)} of {bytes_text(config.memory_bytes)} each"),
    ]
    if config.fits != "no":
        facts.append(("Context", f"{exact_text(config.max_context)} tokens"))
        facts.append(("At once", f"{exact_text(config.concurrency)} such sequences"))
    return [*facts, ("Limited by", config.limited_by)]
