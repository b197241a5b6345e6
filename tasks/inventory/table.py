"""The parameter table: layer by role, equal layers folded under exact index sets; plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Size, Value

from .index_sets import format_indices
from .record import InventoryRecord, Layer


class TableRow(Value):
    """Equal layers, or one part outside the layers.

    Attributes:
        part: e.g. `model.layers` or `embedding`.
        layers: exact set of indices, e.g. `0-2,4-60`; empty outside the layers.
        number: how many layers; 1 outside them.
        kind: attention word and feed-forward, e.g. `mla moe`; empty outside the layers.
        roles: role -> parameters and bytes of ONE of the layers.
        params: of one of them.
        bytes: of one of them, side tensors included.
        kv_bytes_per_token: of one of them.
    """

    part: str
    layers: str
    number: int
    kind: str
    roles: Mapping[str, Size]
    params: int
    bytes: int
    kv_bytes_per_token: int


def inventory_table(record: InventoryRecord) -> Sequence[TableRow]:
    """A row for each set of equal layers and for each role outside the layers, the embedding first."""
    alike: dict[tuple[object, ...], list[Layer]] = {}
    for layer in record.facts.layers:
        stack = layer.name.rpartition(".")[0]
        sizes = tuple((role, size.elements, size.bytes) for role, size in layer.roles.items())
        key = (stack, layer.kind, layer.feed_forward, layer.kv_bytes_per_token, layer.window, sizes)
        alike.setdefault(key, []).append(layer)
    rows = [_layer_row(layers) for layers in alike.values()]
    outside = _outside(record)
    before = [row for row in outside if row.part == "embedding"]
    return [*before, *rows, *(row for row in outside if row.part != "embedding")]


def inventory_lines(record: InventoryRecord) -> Sequence[str]:
    """The inventory in lines of text: what it is, totals, then the table."""
    facts = record.facts
    architecture, total, active = facts.architecture, facts.totals, facts.active_params
    lines = [
        f"{facts.identity.model} at {facts.identity.revision}",
        f"{architecture.architecture or 'unknown architecture'}, type {architecture.model_type or 'unknown'}",
        f"{facts.format}, quantisation {facts.quantization.scheme}",
        f"{total.logical_params:,} parameters, {active.with_embedding_and_head:,} active, "
        f"{total.data_bytes:,} bytes in {total.tensors:,} tensors and {total.shards} shards",
        f"KV cache {facts.kv_bytes_per_token:,} bytes a token (bf16), "
        f"{facts.kv_bytes_per_token_growing:,} of them growing without end, "
        f"{facts.state_bytes_per_sequence:,} bytes a sequence",
    ]
    return [*lines, *_aligned([_cells(row) for row in inventory_table(record)])]


def _layer_row(layers: Sequence[Layer]) -> TableRow:
    first = layers[0]
    return TableRow(
        part=first.name.rpartition(".")[0],
        layers=format_indices(layer.index for layer in layers),
        number=len(layers),
        kind=" ".join(filter(None, (first.kind, first.feed_forward))),
        roles=first.roles,
        params=first.params,
        bytes=first.bytes,
        kv_bytes_per_token=first.kv_bytes_per_token,
    )


def _outside(record: InventoryRecord) -> Sequence[TableRow]:
    """What lies in no layer of the text model, by the role of the weights."""
    sizes: dict[str, list[int]] = {}
    for pattern in record.facts.patterns:
        if pattern.part == "text" and pattern.layers:
            continue
        size = sizes.setdefault(pattern.owner, [0, 0])
        size[0] += pattern.params
        size[1] += pattern.bytes
    return [
        TableRow(
            part=role,
            layers="",
            number=1,
            kind="",
            roles={role: Size(elements=params, bytes=stored)},
            params=params,
            bytes=stored,
            kv_bytes_per_token=0,
        )
        for role, (params, stored) in sizes.items()
    ]


def _cells(row: TableRow) -> Sequence[str]:
    where = f"{row.part} {row.layers}".strip()
    times = f"x {row.number}" if row.layers else ""
    roles = ", ".join(f"{role} {size.elements:,}" for role, size in row.roles.items()) if row.layers else ""
    return (where, times, row.kind, f"{row.params:,}", f"{row.bytes:,} B", roles)


def _aligned(rows: Sequence[Sequence[str]]) -> Sequence[str]:
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
