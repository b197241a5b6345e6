"""The inventory section: what the release is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from day0.tasks.inventory.record import InventoryFacts

from ..model import Report
from ..partial import awaited_files, partial_text
from ..words import bytes_text, plural
from .fact_rows import FactRows
from .inventory_figures import inventory_figures
from .inventory_files import file_tables, role_table
from .inventory_spread import spread_tables
from .inventory_state import state_tables
from .inventory_structure import structure_tables
from .inventory_trust import trust_tables
from .ledger import Ledger
from .parts import Block, Cell, Section, Stat, Table, settle

_CONVENTIONS = (
    ("with_embedding_and_head", "active, with embedding and head"),
    ("without_embedding", "active, without the embedding"),
    ("without_embedding_and_head", "active, without embedding and head"),
)
_TOTALS = (
    ("logical_params", "parameters, packed weights unpacked"),
    ("main_params", "without multi-token prediction"),
    ("routed_expert_params", "in routed experts"),
    ("mtp_params", "in multi-token prediction"),
    ("vision_params", "in vision and projector"),
    ("aux_elements", "elements of side tensors, not counted"),
)


def inventory_section(report: Report, limit: int) -> Section:
    """Readiness, counts, distribution, structure and trust of the release."""
    record = report.inventory
    ledger = Ledger(record)
    stats = _stats(ledger, record.facts)
    block = Block(
        id="inventory",
        title="",
        verdict=record.verdict,
        lead=_lead(record.facts),
        stats=stats,
        figures=inventory_figures(record.facts),
        tables=[settle(table) for table in _tables(ledger, record.facts, limit)],
        sources=ledger.sources,
        reused=report.reused.get("inventory", False),
    )
    about = (
        "What the release is: counted from headers and config, without loading a weight or running its code."
    )
    return Section(id="stage-inventory", title="Inventory", about=about, blocks=[block])


def _lead(facts: InventoryFacts) -> str:
    built = facts.architecture.architecture or facts.architecture.model_type or "an unknown architecture"
    if facts.readiness.state == "listing_only":
        tree = facts.reconciliation.tree
        files = f"{plural(tree.shards, 'tensor file')} of {bytes_text(tree.bytes)}"
        return f"{built}: {files} are listed and cannot be read from here; nothing is counted."
    if facts.format == "none" and facts.readiness.awaited:
        return f"{built}; {plural(awaited_files(facts), 'tensor file')} announced and none here yet."
    if facts.format == "none":
        told = {
            "implied": f"what follows is implied by the config, by {facts.implied.by}",
            "none": "which tensors it implies is unknown",
        }
        return f"{built}; only a config, no weights: {told.get(facts.basis, 'nothing is counted')}."
    totals = facts.totals
    files = f"{plural(totals.tensors, 'tensor')} in {plural(totals.shards, 'shard')}"
    quantized = facts.quantization.scheme
    stored = "plain weights" if quantized == "none" else f"quantised as {quantized}"
    partial = partial_text(facts)
    so_far = f" So far {partial}: every number here is of these alone." if partial else ""
    return f"{built}: {files}, {bytes_text(totals.data_bytes)} of {facts.format}, {stored}.{so_far}"


def _stats(ledger: Ledger, facts: InventoryFacts) -> Sequence[Stat]:
    cell = _known_cells(ledger, facts)
    implied = facts.basis == "implied"
    so_far = " so far" if facts.readiness.partial else ""
    shards = "implied by the config" if implied else f"in {plural(facts.totals.shards, 'shard')}{so_far}"
    stats = [
        Stat(
            "Parameters",
            cell("/totals/logical_params", "short"),
            "implied by the config" if implied else f"logical, all parts{so_far}",
        ),
        Stat(
            "Active parameters",
            cell("/active_params/with_embedding_and_head", "short"),
            f"per token, with embedding and head{so_far}",
        ),
        Stat(
            "Weights",
            cell("/totals/data_bytes", "bytes"),
            "as the config declares them" if implied else f"as stored{so_far}",
        ),
        Stat("Tensors", cell("/totals/tensors", "exact"), shards),
        Stat("KV cache", ledger.cell("/kv_bytes_per_token", "bytes"), "per token, bf16, all layers"),
    ]
    if facts.state_bytes_per_sequence:
        state = ledger.cell("/state_bytes_per_sequence", "bytes")
        stats.append(Stat("Recurrent state", state, "per sequence, bf16"))
    if facts.architecture.max_positions:
        positions = ledger.cell("/architecture/max_positions", "exact")
        stats.append(Stat("Context", positions, "positions, by the config"))
    return stats


def _known_cells(ledger: Ledger, facts: InventoryFacts) -> Callable[[str, str], Cell]:
    """Counts as cells; where nothing is known a 0 would be a lie."""

    def cell(pointer: str, form: str) -> Cell:
        return ledger.told("unknown", pointer) if facts.basis == "none" else ledger.cell(pointer, form)

    return cell


def _tables(ledger: Ledger, facts: InventoryFacts, limit: int) -> Iterable[Table]:
    yield from state_tables(ledger, facts, limit)
    yield from _count_table(ledger, facts)
    if facts.roles:
        yield role_table(ledger, facts)
    if facts.distribution is not None:
        yield from spread_tables(ledger, facts.distribution, limit)
    yield from structure_tables(ledger, facts, limit)
    yield from trust_tables(ledger, facts, limit)
    yield from file_tables(ledger, facts, limit)


def _count_table(ledger: Ledger, facts: InventoryFacts) -> Sequence[Table]:
    rows = FactRows(ledger)
    for name, words in _TOTALS:
        rows.fact(words, f"/totals/{name}", getattr(facts.totals, name))
    for name, words in _CONVENTIONS:
        rows.fact(words, f"/active_params/{name}", getattr(facts.active_params, name))
    growing = facts.kv_bytes_per_token_growing
    if growing != facts.kv_bytes_per_token:
        rows.fact("KV bytes per token once windows are full", "/kv_bytes_per_token_growing", growing)
    implied = facts.implied
    if implied.totals is not None and facts.basis != "implied":
        pointer = "/implied/totals"
        rows.fact(
            "implied by the config: parameters", f"{pointer}/logical_params", implied.totals.logical_params
        )
        rows.fact("implied by the config: bytes", f"{pointer}/data_bytes", implied.totals.data_bytes, "bytes")
    return rows.table("inventory--counts", "Counts, and active parameters by three conventions", folded=False)
