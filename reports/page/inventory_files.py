"""The release piece by piece: roles, layers, tensor files, names without a role."""

from __future__ import annotations

from collections.abc import Iterator

from day0.tasks.inventory.record import InventoryFacts

from ..pointers import pointer_to
from ..words import bytes_text, exact_text, listed
from .inventory_patterns import pattern_table
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Row, Table
from .text import element_id


def file_tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterator[Table]:
    """Layers, tensors folded by name, files, names without a role; each folded."""
    if facts.layers:
        yield _layer_table(ledger, facts, limit)
    if facts.patterns:
        yield pattern_table(ledger, facts, limit)
    if facts.shards:
        yield _shard_table(ledger, facts, limit)
    if facts.unknown_tensors:
        yield _unknown_table(facts, limit)


def role_table(ledger: Ledger, facts: InventoryFacts) -> Table:
    """Parameters and bytes by role, the largest first."""
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
