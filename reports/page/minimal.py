"""The minimal section: what loads and what executes with the real weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.minimal.record import LoadFact, MinimalFacts, MinimalRecord, NodeRunFact

from ..model import Report, TargetResult
from ..words import exact_text, listed, plural
from .blocks import absent_block, reused, target_slug, why_nothing
from .depth_axes import short_name
from .ledger import Ledger
from .limits import pick
from .parts import Block, Cell, Column, Figure, Key, Row, Section, Stat, Table, settle
from .strip_figure import Square, strip
from .text import element_id

_NOT_TRIED = ("not_run", "unsupported")
_LOG_LINES = 30


def minimal_section(report: Report, limit: int) -> Section:
    """Nodes run, the loader's answer, the cut-down release; a block for each target."""
    about = "Embedding, first layers of each kind, norm and head, with the real weights: prefill and decode."
    blocks = [
        _block(report, index, result, result.stages.minimal, limit)
        if result.stages.minimal
        else absent_block("minimal", result)
        for index, result in enumerate(report.targets)
    ]
    return Section(id="stage-minimal", title="Minimal run", about=about, blocks=blocks)


def _block(report: Report, index: int, result: TargetResult, record: MinimalRecord, limit: int) -> Block:
    ledger, facts, slug = Ledger(record), record.facts, target_slug(result)
    failed = record.verdict not in ("pass", "warn")
    return Block(
        id=f"minimal--{slug}",
        title=result.target,
        verdict=record.verdict,
        lead=_lead(facts) if facts.nodes or facts.load else why_nothing(record, "No node was run."),
        stats=_stats(ledger, record),
        figures=[_strip(facts, slug)] if facts.nodes else (),
        tables=[settle(table) for table in _tables(ledger, facts, slug, index, limit)],
        log=record.observations.worker_log[-_LOG_LINES:] if failed else (),
        sources=ledger.sources,
        reused=reused(report, "minimal", result),
    )


def look(outcome: str) -> str:
    """The verdict whose colour and shape an outcome takes."""
    if outcome in ("ran", "loaded", "passed"):
        return "pass"
    return "unverified" if outcome in _NOT_TRIED else "fail"


def _lead(facts: MinimalFacts) -> str:
    ran = sum(node.outcome == "ran" for node in facts.nodes)
    told = (
        f"{exact_text(ran)} of {plural(len(facts.nodes), 'node run')} succeeded"
        if facts.nodes
        else "No node was run"
    )
    load = facts.load
    if load is None:
        return f"{told}; the stack's own loader was not asked."
    return f"{told}; the stack's own loader says {load.outcome}."


def _stats(ledger: Ledger, record: MinimalRecord) -> Sequence[Stat]:
    facts, seen = record.facts, record.observations
    stats = []
    if facts.nodes:
        ran = sum(node.outcome == "ran" for node in facts.nodes)
        cell = ledger.derived(ran, "exact", "outcomes that are `ran`", "/nodes")
        stats.append(Stat("Node runs", cell, f"of {exact_text(len(facts.nodes))} succeeded"))
    if facts.cut is not None:
        remark = (
            f"{plural(facts.cut.tensors, 'tensor')}, layers {listed([str(i) for i in facts.cut.layers], 6)}"
        )
        stats.append(Stat("Cut-down release", ledger.cell("/cut/bytes", "bytes"), remark))
    if seen.load_seconds:
        stats.append(
            Stat("Load time", ledger.measured(seen.load_seconds, "seconds"), "of the cut-down release")
        )
    if seen.peak_bytes:
        stats.append(Stat("Peak memory", ledger.measured(seen.peak_bytes, "bytes"), "of the worker"))
    return stats


def _strip(facts: MinimalFacts, slug: str) -> Figure:
    phases = list(dict.fromkeys(node.phase for node in facts.nodes))
    rows = [
        (
            phase,
            [
                Square(
                    _label(node.name),
                    look(node.outcome),
                    f"{node.name} {phase}: {node.outcome} {node.detail}".strip(),
                    _id(slug, node),
                )
                for node in facts.nodes
                if node.phase == phase
            ],
        )
        for phase in phases
    ]
    return Figure(
        id=f"minimal--{slug}--strip",
        caption="Every node that was run, in the order of a forward.",
        svg=strip(rows, f"Outcome of {plural(len(facts.nodes), 'node run')}"),
        legend=[Key("k-v-pass", "ran"), Key("k-v-fail", "failed"), Key("k-v-unverified", "not tried")],
    )


def _label(name: str) -> str:
    short = short_name(name)
    return f"layer {short}" if short.isdigit() else short


def _id(slug: str, node: NodeRunFact) -> str:
    return element_id("minimal", slug, node.name, node.phase)


def _tables(ledger: Ledger, facts: MinimalFacts, slug: str, index: int, limit: int) -> Iterable[Table]:
    if facts.load is not None:
        yield _load_table(ledger, facts.load, slug, limit)
    if facts.nodes:
        yield _node_table(facts, slug, index, limit)
    if facts.cut is not None and facts.cut.config_changes:
        yield Table(
            id=f"minimal--{slug}--config",
            caption="Config of the cut-down release, where it differs",
            columns=[Column("Change")],
            rows=[Row([Cell(change, code=True)]) for change in facts.cut.config_changes[:limit]],
            total=len(facts.cut.config_changes),
            folded=True,
        )


def _load_table(ledger: Ledger, load: LoadFact, slug: str, limit: int) -> Table:
    kinds = (
        ("missing", "missing in the checkpoint", load.missing, "fail"),
        ("unexpected", "unknown to the model", load.unexpected, "warn"),
        ("mismatched", "of another shape", load.mismatched, "fail"),
    )
    told = f"{load.outcome}: {load.detail}" if load.detail else load.outcome
    rows = [
        Row(
            [
                Cell(f"keys {words}", status=bad if names else "pass"),
                ledger.derived(len(names), "exact", "number of keys", f"/load/{field}"),
                Cell(listed(list(names), 5) if names else "", code=True),
            ]
        )
        for field, words, names, bad in kinds
    ]
    return Table(
        id=f"minimal--{slug}--load",
        caption=f"What the target's own loader said: {told}",
        columns=[Column("Keys"), Column("Number", True), Column("Which")],
        rows=rows[:limit],
    )


def _node_table(facts: MinimalFacts, slug: str, index: int, limit: int) -> Table:
    chosen = pick(len(facts.nodes), limit, lambda place: look(facts.nodes[place].outcome) == "pass")
    rows = [
        Row(
            [
                Cell(node.name, code=True, status=look(node.outcome)),
                Cell(node.phase),
                Cell(node.role),
                Cell(node.outcome.replace("_", " ")),
                Cell(node.detail),
                Cell(node.kind[:12], code=True, title=node.kind),
            ],
            id=_id(slug, node),
            status=look(node.outcome),
        )
        for node in (facts.nodes[place] for place in chosen)
    ]
    return Table(
        id=f"minimal--{slug}--nodes",
        caption="Nodes run",
        columns=[
            Column("Node"),
            Column("Phase"),
            Column("Role"),
            Column("Outcome"),
            Column("Error"),
            Column("Kind", help="Digest of the node's graph; equal kinds share one graph."),
        ],
        rows=rows,
        total=len(facts.nodes),
        rest=f"report.json#/targets/{index}/stages/minimal/facts/nodes",
        folded=True,
    )
