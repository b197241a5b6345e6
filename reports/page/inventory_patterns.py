"""The table of all tensors, those whose names differ only in their indices on one row."""

from __future__ import annotations

from day0.tasks.inventory.record import InventoryFacts

from ..words import listed
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Row, Table
from .text import element_id


def pattern_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    """Every tensor of the release, folded by name, dtype and shape; the largest where there are too many."""
    rows = []
    for place in pick(len(facts.patterns), limit, lambda place: -facts.patterns[place].bytes):
        pattern = facts.patterns[place]
        indices = [indices for indices in (pattern.layers, *pattern.others) if indices]
        shape = " \N{MULTIPLICATION SIGN} ".join(str(size) for size in pattern.shape)
        rows.append(
            Row(
                [
                    Cell(pattern.pattern, code=True),
                    Cell(listed(indices, 2) if indices else ""),
                    Cell(pattern.role),
                    Cell(f"{pattern.dtype} {pattern.packing}".strip(), code=True, whole=not pattern.packing),
                    Cell(shape or "scalar", whole=True),
                    ledger.cell(f"/patterns/{place}/tensors", "exact"),
                    ledger.cell(f"/patterns/{place}/params", "exact"),
                    ledger.cell(f"/patterns/{place}/bytes", "bytes"),
                ],
                id=element_id("inventory", "pattern", pattern.pattern, pattern.dtype, shape, pattern.layers),
            )
        )
    return Table(
        id="inventory--patterns",
        caption="Tensors, folded by name",
        columns=[
            Column("Name"),
            Column("Layers"),
            Column("Role"),
            Column("Stored as"),
            Column("Shape"),
            Column("Tensors", True),
            Column("Parameters", True),
            Column("Bytes", True),
        ],
        rows=rows,
        total=len(facts.patterns),
        rest="report.json#/inventory/facts/patterns",
        folded=True,
    )
