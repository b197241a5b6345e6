"""Whom a release asks to be trusted: its own code, its pickles, licence and lineage."""

from __future__ import annotations

from collections.abc import Iterator

from day0.tasks.inventory.record import InventoryFacts

from ..words import exact_text, listed, plural
from .fact_rows import FactRows
from .ledger import Ledger
from .parts import Cell, Column, Row, Table


def trust_tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterator[Table]:
    """Code and origin in facts, then its files, the calls that can do more than compute, and pickles."""
    yield from _fact_table(ledger, facts)
    if facts.code.files:
        yield _file_table(ledger, facts, limit)
    if facts.code.calls:
        yield _call_table(ledger, facts, limit)
    if facts.pickles:
        yield _pickle_table(ledger, facts, limit)


def _fact_table(ledger: Ledger, facts: InventoryFacts) -> Iterator[Table]:
    rows, support, code, origin = FactRows(ledger), facts.transformers, facts.code, facts.provenance
    if support.model_type:
        since = f"since {support.known_since}" if support.known_since else "not known"
        newest = f" up to {support.newest_checked}" if support.newest_checked else ""
        rows.told(
            "transformers",
            f"{support.model_type}: {since}{'' if support.known_since else newest}",
            "/transformers",
        )
        if support.needs_custom_code:
            rows.told("builds", "only with the repository's own code", "/transformers")
    for place, reference in enumerate(code.references[:12]):
        elsewhere = f"of {reference.repository}" if reference.repository else "its files were not looked into"
        found = {True: "found", False: "not in the release", None: elsewhere}[reference.found]
        rows.told(
            f"asked for in {reference.key}", f"{reference.target}, {found}", f"/code/references/{place}"
        )
    rows.fact("kernels", "/code/kernels", code.kernels)
    rows.fact("packages", "/code/packages", code.packages)
    for name, value in origin:
        rows.fact(name.replace("_", " "), f"/provenance/{name}", value)
    yield from rows.table("inventory--trust", "Code, licence and lineage")


def _file_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(file.path, code=True),
                ledger.cell(f"/code/files/{place}/lines", "exact"),
                Cell(listed([one.name for one in file.classes], 4) if file.classes else ""),
                Cell(listed(list(file.packages), 6) if file.packages else ""),
                Cell(file.error or (f"lacks {listed(list(file.missing), 3)}" if file.missing else "")),
            ],
            status="warn" if file.error or file.missing else "",
        )
        for place, file in enumerate(facts.code.files[:limit])
    ]
    return Table(
        id="inventory--code",
        caption="Its own Python files, read as text and never run",
        columns=[
            Column("File"),
            Column("Lines", True),
            Column("Classes"),
            Column("Imports"),
            Column("Remark"),
        ],
        rows=rows,
        total=len(facts.code.files),
        rest="report.json#/inventory/facts/code/files",
        folded=True,
    )


def _call_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    return Table(
        id="inventory--calls",
        caption="Calls that can do more than compute",
        columns=[Column("Call"), Column("Kind"), Column("File"), Column("Line", True)],
        rows=[
            Row(
                [
                    Cell(call.what, code=True),
                    Cell(call.kind),
                    Cell(call.file, code=True),
                    ledger.cell(f"/code/calls/{place}/line", "exact"),
                ],
                status="warn",
            )
            for place, call in enumerate(facts.code.calls[:limit])
        ],
        total=len(facts.code.calls),
        rest="report.json#/inventory/facts/code/calls",
        folded=True,
    )


def _pickle_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    rows = []
    for place, file in enumerate(facts.pickles[:limit]):
        asked = listed(list(file.foreign), 4) if file.foreign else plural(len(file.globals), "plain global")
        rows.append(
            Row(
                [
                    Cell(file.path, code=True),
                    ledger.cell(f"/pickles/{place}/size", "bytes"),
                    Cell(file.verdict),
                    Cell(asked, code=bool(file.foreign)),
                    Cell(f"{exact_text(file.opcodes)} opcodes{f'; {file.error}' if file.error else ''}"),
                ],
                status="fail" if file.foreign else "warn" if file.error else "",
            )
        )
    return Table(
        id="inventory--pickles",
        caption="Pickles, listed by their opcodes and never loaded",
        columns=[
            Column("File"),
            Column("Size", True),
            Column("Verdict"),
            Column("Loading it would import"),
            Column("Listed"),
        ],
        rows=rows,
        total=len(facts.pickles),
        rest="report.json#/inventory/facts/pickles",
        folded=True,
    )
