"""Whether the release is all there: what listing, index, headers and config say of each tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from day0.tasks.inventory.record import InventoryFacts
from day0.tasks.inventory.record_reconciliation import ExceptionRow
from day0.tasks.inventory.record_verification import Verification

from ..partial import awaited_text, partial_text
from ..words import bytes_text, exact_text, listed, plural
from .fact_rows import FactRows
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Row, Table
from .text import element_id

STATES = {
    "complete": "complete",
    "arriving": "still arriving: what is there is sound",
    "listing_only": "listed, but its files cannot be read",
    "partly_read": "some of its tensor files could not be read",
    "no_config": "weights without a config",
    "config_only": "only a config, no weights",
    "broken": "broken",
}
_CONFIG_STATUS = {
    "unverified": "not held against the config",
    "arithmetic": "layers, experts and shapes by the config's numbers",
    "checked": "every tensor against the model that the config builds",
}
_SHARD_STATES = {
    "matches": "as the source vouches",
    "recorded": "hash recorded, none to compare",
    "as_before": "as last verified",
    "changed": "changed since last verified",
    "damaged": "damaged since last verified",
    "differs": "not what the source vouches for",
    "unreadable": "unreadable",
}
_SOUND = ("matches", "recorded", "as_before")
_COUNTS = ("tensors", "nan", "inf", "zero_tensors")
_WORST = 10  # rows of the table of magnitudes


def state_tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterator[Table]:
    """Readiness and the four witnesses, then each disagreement, then weights that are not canonical."""
    yield from _state_table(ledger, facts)
    if facts.reconciliation.exceptions:
        yield _exception_table(ledger, facts, limit)
    if facts.redundant:
        yield _redundant_table(ledger, facts, limit)
    if facts.verification is not None:
        yield from _verification_tables(ledger, facts, limit)


def _state_table(ledger: Ledger, facts: InventoryFacts) -> Iterator[Table]:
    rows, ready, held = FactRows(ledger), facts.readiness, facts.reconciliation
    rows.told("release", STATES.get(ready.state, ready.state), "/readiness")
    rows.fact("because", "/readiness/reasons", ready.reasons)
    if ready.awaited:
        rows.told("awaited", awaited_text(facts, 4), "/readiness")
    partial = partial_text(facts)
    if partial:
        rows.told("so far", f"{partial}; all counts are of these alone", "/totals", "/reconciliation/index")
    tree, index, headers, config = held.tree, held.index, held.headers, held.config
    if tree.files:
        hashed = f", {exact_text(tree.hashed)} with a hash" if tree.hashed else ""
        shards = f"{plural(tree.shards, 'shard')} of {bytes_text(tree.bytes)}{hashed}"
        rows.told("listing", f"{plural(tree.files, 'file')}, {shards}", "/reconciliation/tree")
    if index.path:
        size = (
            "" if index.total_size_is == "absent" else f"; its total: {index.total_size_is.replace('_', ' ')}"
        )
        placed = f"{plural(index.tensors, 'tensor')} in {plural(index.shards, 'shard')}"
        rows.told("index", f"{index.path}: {placed}{size}", "/reconciliation/index")
    if headers.files:
        kept = f"{plural(headers.tensors, 'tensor')} of {bytes_text(headers.bytes)}"
        rows.told("headers", f"{plural(headers.files, 'file')}, {kept}", "/reconciliation/headers")
    by = f"{': ' if config.status == 'arithmetic' else ', by '}{config.by}" if config.by else ""
    counts = (("missing", config.missing), ("unexpected", config.unexpected), ("misshapen", config.misshapen),
              ("layers not as stated", config.layers_off),
              ("ignored by the class", config.ignored))  # fmt: skip
    told = "".join(f"; {exact_text(number)} {what}" for what, number in counts if number)
    rows.told(
        "config", f"{_CONFIG_STATUS.get(config.status, config.status)}{by}{told}", "/reconciliation/config"
    )
    if held.consistent or held.faulty:
        agreed = f"{exact_text(held.consistent)} tensors agree, {exact_text(held.faulty)} do not"
        rows.told("all four", agreed, "/reconciliation/consistent", "/reconciliation/faulty")
    yield from rows.table("inventory--state", "Is the release all there", folded=False)


def _exception_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    held = facts.reconciliation.exceptions
    rows = []
    for place in pick(len(held), limit, lambda place: -held[place].tensors):
        item = held[place]
        rows.append(
            Row(
                [
                    Cell(item.verdict.replace("_", " ")),
                    Cell(item.pattern, code=True),
                    Cell(_indices(item)),
                    ledger.cell(f"/reconciliation/exceptions/{place}/tensors", "exact"),
                    Cell(_files(item), code=True),
                    Cell(item.code),
                ],
                id=element_id("inventory", "exception", item.verdict, item.pattern, _indices(item)),
                status="fail",
            )
        )
    return Table(
        id="inventory--exceptions",
        caption="Tensors about which listing, index, headers and config disagree",
        columns=[
            Column("What"),
            Column("Tensors"),
            Column("Indices"),
            Column("Number", True),
            Column("Files"),
            Column("Finding"),
        ],
        rows=rows,
        total=len(held),
        rest="report.json#/inventory/facts/reconciliation/exceptions",
    )


def _indices(item: ExceptionRow) -> str:
    named = (("layers", item.layers), ("experts", item.experts))
    sets = [f"{what} {indices}" for what, indices in named if indices]
    whole = "" if item.whole or not sets else " (some of these)"
    return f"{', '.join([*sets, *item.others])}{whole}"


def _files(item: ExceptionRow) -> str:
    names = list(item.files)
    return f"{listed(names, 2)}{f' +{item.more_files}' if item.more_files else ''}" if names else ""


def _redundant_table(ledger: Ledger, facts: InventoryFacts, limit: int) -> Table:
    rows = [
        Row(
            [
                Cell(item.name or "(root)", code=True),
                Cell(item.kind),
                ledger.cell(f"/redundant/{place}/files", "exact"),
                ledger.cell(f"/redundant/{place}/bytes", "bytes"),
                Cell("not needed" if item.redundant else "another model"),
                Cell(item.same_as_canonical),
            ]
        )
        for place, item in enumerate(facts.redundant[:limit])
    ]
    return Table(
        id="inventory--redundant",
        caption="Weights beside the canonical set; none of them is counted",
        columns=[
            Column("Set"),
            Column("Kind"),
            Column("Files", True),
            Column("Bytes", True),
            Column("Needed"),
            Column("Same as the canonical", help="by hashes"),
        ],
        rows=rows,
        total=len(facts.redundant),
        rest="report.json#/inventory/facts/redundant",
        folded=True,
    )


def _verification_tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterator[Table]:
    found = facts.verification
    assert found is not None
    rows = FactRows(ledger)
    rows.fact("bytes read", "/verification/bytes", found.bytes, "bytes")
    if found.earlier:
        rows.told("read by", "an earlier --verify, of these very files", "/verification/earlier")
    states = Counter(shard.state for shard in found.shards)
    told = ", ".join(
        f"{number} {_SHARD_STATES.get(state, state)}" for state, number in sorted(states.items())
    )
    rows.told("files", told, "/verification/shards")
    rows.fact("tensors looked at in full", "/verification/tensors", found.tensors)
    rows.fact("tensors only hashed", "/verification/unchecked", found.unchecked)
    for name, key in (("NaN", "nan"), ("infinities", "inf"), ("tensors of zeros", "zero_tensors")):
        rows.told(name, exact_text(getattr(found, key)), f"/verification/{key}")
    yield from rows.table("inventory--verification", "Every byte read once", folded=False)
    if found.patterns:
        yield _number_table(ledger, found)
    shards = [place for place, shard in enumerate(found.shards) if shard.state not in _SOUND]
    if shards:
        yield Table(
            id="inventory--verified-shards",
            caption="Files whose bytes are not those of the source",
            columns=[Column("File"), Column("State"), Column("Size", True), Column("Problem")],
            rows=[
                Row(
                    [
                        Cell(found.shards[place].path, code=True),
                        Cell(_SHARD_STATES.get(found.shards[place].state, found.shards[place].state)),
                        ledger.cell(f"/verification/shards/{place}/size", "bytes"),
                        Cell(found.shards[place].problem),
                    ],
                    status="fail",
                )
                for place in shards[:limit]
            ],
            total=len(shards),
            rest="report.json#/inventory/facts/verification/shards",
        )


def _number_table(ledger: Ledger, found: Verification) -> Table:
    """What the numbers of the tensors are like, the worst first."""
    rows = []
    for place, item in enumerate(found.patterns[:_WORST]):
        pointer = f"/verification/patterns/{place}"
        where = item.worst or (item.examples[0] if item.examples else "")
        rows.append(
            Row(
                [
                    Cell(item.pattern, code=True),
                    Cell(item.dtype),
                    *(ledger.cell(f"{pointer}/{key}", "exact") for key in _COUNTS),
                    ledger.cell(f"{pointer}/max_abs", "number"),
                    Cell(where if where != item.pattern else "", code=True),
                ],
                status="fail" if item.nan or item.inf else "",
            )
        )
    return Table(
        id="inventory--verified-numbers",
        caption="Numbers in the tensors, the worst patterns first",
        columns=[
            Column("Tensors"),
            Column("Stored as"),
            Column("Number", True),
            Column("NaN", True),
            Column("Infinite", True),
            Column("Zeros only", True, "tensors of nothing but zeros"),
            Column("Largest", True, "magnitude, before any scale"),
            Column("In"),
        ],
        rows=rows,
        total=len(found.patterns),
        rest="report.json#/inventory/facts/verification/patterns",
        folded=not any(row.status for row in rows),
    )
