"""The inventory section: what the release is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.inventory.record import InventoryFacts, InventoryRecord

from ..model import Report
from ..pointers import pointer_to
from ..words import bytes_text, count_text, exact_text, listed, plural
from .bars_figure import Bar, Part, layer_columns, stacked_bars
from .inventory_patterns import pattern_table
from .ledger import Ledger
from .limits import pick
from .parts import Block, Cell, Column, Figure, Key, Row, Section, Stat, Table, settle
from .text import element_id

_PALETTE = 8


def inventory_section(report: Report, limit: int) -> Section:
    """Counts, layers, roles, shards and config facts of the release."""
    record = report.inventory
    ledger = Ledger(record)
    block = Block(
        id="inventory",
        title="",
        verdict=record.verdict,
        lead=_lead(record.facts),
        stats=_stats(ledger, record.facts),
        figures=_figures(record.facts),
        tables=[settle(table) for table in _tables(ledger, record, limit)],
        sources=ledger.sources,
        reused=report.reused.get("inventory", False),
    )
    about = (
        "What the release is: counted from headers and config, without loading a weight or running its code."
    )
    return Section(id="stage-inventory", title="Inventory", about=about, blocks=[block])


def _lead(facts: InventoryFacts) -> str:
    built = facts.architecture.architecture or facts.architecture.model_type or "an unknown architecture"
    if facts.format == "none":
        return f"{built}; only a config, no weights."
    totals = facts.totals
    files = f"{plural(totals.tensors, 'tensor')} in {plural(totals.shards, 'shard')}"
    quantized = facts.quantization.scheme
    stored = "plain weights" if quantized == "none" else f"quantised as {quantized}"
    return f"{built}: {files}, {bytes_text(totals.data_bytes)} of {facts.format}, {stored}."


def _stats(ledger: Ledger, facts: InventoryFacts) -> Sequence[Stat]:
    stats = [
        Stat("Parameters", ledger.cell("/totals/logical_params", "short"), "logical, all parts"),
        Stat(
            "Active parameters",
            ledger.cell("/active_params/with_embedding_and_head", "short"),
            "per token, with embedding and head",
        ),
        Stat("Weights", ledger.cell("/totals/data_bytes", "bytes"), "as stored"),
        Stat(
            "Tensors", ledger.cell("/totals/tensors", "exact"), f"in {plural(facts.totals.shards, 'shard')}"
        ),
        Stat("KV cache", ledger.cell("/kv_bytes_per_token", "bytes"), "per token, bf16, all layers"),
    ]
    if facts.state_bytes_per_sequence:
        cell = ledger.cell("/state_bytes_per_sequence", "bytes")
        stats.append(Stat("Recurrent state", cell, "per sequence, bf16"))
    if facts.architecture.max_positions:
        cell = ledger.cell("/architecture/max_positions", "exact")
        stats.append(Stat("Context", cell, "positions, by the config"))
    return stats


def _figures(facts: InventoryFacts) -> Sequence[Figure]:
    figures = []
    roles = sorted(facts.roles.items(), key=lambda item: -item[1].bytes)
    if roles:
        css = {role: f"c{index % _PALETTE}" for index, (role, _) in enumerate(roles)}
        bars = [
            Bar(
                "bytes",
                [Part(css[r], s.bytes, f"{r}: {bytes_text(s.bytes)}") for r, s in roles],
                bytes_text(sum(s.bytes for _, s in roles)),
            ),
            Bar(
                "parameters",
                [Part(css[r], s.params, f"{r}: {count_text(s.params)}") for r, s in roles],
                count_text(sum(s.params for _, s in roles)),
            ),
        ]
        figures.append(
            Figure(
                id="inventory--roles-figure",
                caption="Where the bytes and the parameters are, by role.",
                svg=stacked_bars(bars, f"Bytes and parameters of {plural(len(roles), 'role')}", margin=110),
                legend=[Key(f"k-{css[role]}", role) for role, _ in roles],
            )
        )
    if len(facts.layers) > 1:
        figures.append(_layer_figure(facts))
    return figures


def _layer_figure(facts: InventoryFacts) -> Figure:
    kinds = list(dict.fromkeys((layer.kind, layer.feed_forward) for layer in facts.layers))
    css = {kind: f"c{index % _PALETTE}" for index, kind in enumerate(kinds)}
    columns = [
        Part(
            css[layer.kind, layer.feed_forward],
            layer.bytes,
            f"{layer.name}: {layer.kind}, {layer.feed_forward}, {bytes_text(layer.bytes)}",
        )
        for layer in facts.layers
    ]
    return Figure(
        id="inventory--layers-figure",
        caption="Bytes of each layer as stored.",
        svg=layer_columns(columns, f"Bytes of {len(columns)} layers", bytes_text, "layer"),
        legend=[Key(f"k-{css[kind]}", f"{kind[0]}, {kind[1]}") for kind in kinds],
    )


def _tables(ledger: Ledger, record: InventoryRecord, limit: int) -> Iterable[Table]:
    facts = record.facts
    yield _architecture_table(ledger, facts)
    yield _role_table(ledger, facts)
    if facts.layers:
        yield _layer_table(ledger, facts, limit)
    if facts.patterns:
        yield pattern_table(ledger, facts, limit)
    if facts.shards:
        yield _shard_table(ledger, facts, limit)
    if facts.unknown_tensors:
        yield _unknown_table(facts, limit)


def _architecture_table(ledger: Ledger, facts: InventoryFacts) -> Table:
    rows = []
    for name, value in facts.architecture:
        if value in (0, "", 0.0) or value == () or value == []:
            continue
        pointer = pointer_to("architecture", name)
        if isinstance(value, float):
            cell = ledger.cell(pointer, "text", code=True)
        elif isinstance(value, int):
            cell = ledger.cell(pointer, "exact", numeric=False)
        else:
            cell = Cell(listed(list(value), 5) if not isinstance(value, str) else value, code=True)
        rows.append(Row([Cell(name.replace("_", " ")), cell]))
    tied = facts.tied_embeddings
    rows.append(
        Row([Cell("tied embeddings"), Cell(f"config {_yes(tied.config)}, tensors {_yes(tied.tensors)}")])
    )
    quantization = facts.quantization
    told = quantization.scheme
    if quantization.scheme != "none":
        told = f"{told}, {quantization.bits} bits, group {quantization.group}"
    rows.append(Row([Cell("quantisation"), Cell(told)]))
    return Table(
        id="inventory--architecture",
        caption="What the config says",
        columns=[Column("Fact"), Column("Value")],
        rows=rows,
        folded=True,
    )


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "does not say"}[value]


def _role_table(ledger: Ledger, facts: InventoryFacts) -> Table:
    rows = []
    for role, size in sorted(facts.roles.items(), key=lambda item: -item[1].bytes):
        dtypes = listed([f"{name} {bytes_text(part.bytes)}" for name, part in size.dtypes.items()], 4)
        rows.append(
            Row(
                [
                    Cell(role),
                    ledger.cell(pointer_to("roles", role, "params"), "exact"),
                    ledger.cell(pointer_to("roles", role, "bytes"), "bytes"),
                    Cell(dtypes),
                ],
                id=element_id("inventory", "role", role),
            )
        )
    return Table(
        id="inventory--roles",
        caption="Parameters and bytes by role",
        columns=[Column("Role"), Column("Parameters", True), Column("Bytes", True), Column("Stored as")],
        rows=rows,
    )


def _layer_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    chosen = pick(len(facts.layers), limit, lambda index: -facts.layers[index].bytes)
    rows = []
    for index in chosen:
        layer = facts.layers[index]
        rows.append(
            Row(
                [
                    Cell(layer.name, code=True),
                    Cell(layer.kind),
                    Cell(layer.feed_forward),
                    ledger.cell(f"/layers/{index}/params", "exact"),
                    ledger.cell(f"/layers/{index}/bytes", "bytes"),
                    ledger.cell(f"/layers/{index}/kv_bytes_per_token", "exact"),
                ],
                id=element_id("inventory", "layer", layer.name),
            )
        )
    return Table(
        id="inventory--layers",
        caption="Layers",
        columns=[
            Column("Layer"),
            Column("Attention"),
            Column("Feed-forward"),
            Column("Parameters", True),
            Column("Bytes", True),
            Column("KV bytes per token", True),
        ],
        rows=rows,
        total=len(facts.layers),
        rest="report.json#/inventory/facts/layers",
        folded=True,
    )


def _shard_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(facts.shards[index].path, code=True),
                ledger.cell(f"/shards/{index}/tensors", "exact"),
                ledger.cell(f"/shards/{index}/size", "bytes"),
                Cell(listed(list(facts.shards[index].dtypes), 6)),
            ],
            id=element_id("inventory", "shard", facts.shards[index].path),
        )
        for index in pick(len(facts.shards), limit, lambda index: -facts.shards[index].size)
    ]
    return Table(
        id="inventory--shards",
        caption="Tensor files",
        columns=[Column("File"), Column("Tensors", True), Column("Size", True), Column("Dtypes")],
        rows=rows,
        total=len(facts.shards),
        rest="report.json#/inventory/facts/shards",
        folded=True,
    )


def _unknown_table(facts: InventoryFacts, limit: int) -> Table:
    return Table(
        id="inventory--unknown",
        caption=f"Tensors without a known role ({exact_text(len(facts.unknown_tensors))} patterns)",
        columns=[Column("Pattern")],
        rows=[Row([Cell(name, code=True)]) for name in facts.unknown_tensors[:limit]],
        total=len(facts.unknown_tensors),
        rest="report.json#/inventory/facts/unknown_tensors",
        folded=True,
    )
