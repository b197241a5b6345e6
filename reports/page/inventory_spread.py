"""How the model lies: layer by role, rank by rank, and what its ranks exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.tasks.inventory.record_distribution import Distribution, LayoutMemory, Primitive, Share
from day0.tasks.inventory.table import Fold, fold_layers

from ..words import bytes_text, exact_text
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Row, Table
from .text import element_id

_BASIS = {
    "tensors": "Layer by role, equal layers once",
    "implied": "Layer by role, equal layers once; implied by the config, nothing is stored",
    "config": "Layer by role, equal layers once; by the config alone, parameters are not known",
}
_POINTER = "/distribution/rows"


def spread_tables(ledger: Ledger, distribution: Distribution, limit: int) -> Iterator[Table]:
    """The folded distribution, memory per rank, the exchange of each role."""
    if distribution.rows:
        yield _distribution_table(ledger, distribution, limit)
    if distribution.memory:
        yield _memory_table(ledger, distribution.memory)
    if distribution.primitives:
        yield _exchange_table(ledger, distribution.primitives)


def _distribution_table(ledger: Ledger, distribution: Distribution, limit: int) -> Table:
    places = {id(row): place for place, row in enumerate(distribution.rows)}
    folds = fold_layers(distribution)
    every = [(fold, number) for fold in folds for number in range(len(fold.rows))]
    shown = pick(len(every), limit, lambda at: -every[at][0].rows[every[at][1]].bytes * every[at][0].number)
    rows: list[Row] = []
    told: Fold | None = None
    for at in shown:
        fold, number = every[at]
        rows.append(_share_row(ledger, fold, fold.rows[number], places, first=fold is not told))
        told = fold
    return Table(
        id="inventory--distribution",
        caption=_BASIS[distribution.basis],
        columns=[
            Column("Where"),
            Column("Role"),
            Column("Parameters", True, "of one layer"),
            Column("Active", True, "of one layer, for one token of text"),
            Column("Bytes", True, "of one layer as stored, side tensors included"),
            Column("KV, bytes / token", True, "bytes in bf16, before any window is full"),
            Column("Activations", help="B sequences, T tokens, P patches"),
        ],
        rows=rows,
        total=len(every),
        rest="report.json#/inventory/facts/distribution/rows",
    )


def _share_row(ledger: Ledger, fold: Fold, share: Share, places: dict[int, int], *, first: bool) -> Row:
    pointer = f"{_POINTER}/{places[id(share)]}"
    kind = " ".join(filter(None, (share.kind, share.feed_forward)))
    times = f", {exact_text(fold.number)} layers" if fold.number > 1 else ""
    where = f"{fold.place}{f' ({kind}{times})' if kind else times}" if first else ""
    kept = share.kv_bytes_per_token
    return Row(
        [
            Cell(where, code=first),
            Cell(share.role, whole=True),
            *(
                ledger.cell(f"{pointer}/{field}", form) if share.tensors else Cell("unknown")
                for field, form in (("params", "exact"), ("active_params", "exact"), ("bytes", "bytes"))
            ),
            ledger.cell(f"{pointer}/kv_bytes_per_token", "exact") if kept else Cell("", numeric=True),
            Cell(" → ".join(filter(None, (share.input, share.inner, share.output)))),
        ],
        id=element_id("inventory", "share", share.part, fold.place, share.role),
    )


def _memory_table(ledger: Ledger, layouts: Sequence[LayoutMemory]) -> Table:
    predicts = any(item.mtp_bytes_max for item in layouts)
    prediction = [
        Column("Prediction", True, "multi-token prediction adds that on the last stage, where loaded")
    ]
    return Table(
        id="inventory--memory",
        caption="Expected memory per rank, before activations and what an engine holds back",
        columns=[
            Column("Layout"),
            Column("Ranks", True),
            Column("Weights", True, "on the fullest rank, without multi-token prediction"),
            Column("Emptiest", True),
            *(prediction if predicts else ()),
            Column("KV, bytes / token", True, "bytes in bf16 on the fullest rank"),
            Column("State, bytes / sequence", True, "bytes in bf16 on the fullest rank"),
            Column(
                "Sent / token", help="bytes that one rank sends for one token in all layers, by direction"
            ),
            Column("Remark"),
        ],
        rows=[_memory_row(ledger, place, item, predicts) for place, item in enumerate(layouts)],
    )


def _memory_row(ledger: Ledger, place: int, item: LayoutMemory, predicts: bool) -> Row:
    pointer = f"/distribution/memory/{place}"
    forms = {"ranks": "exact", "weights_bytes_max": "bytes", "weights_bytes_min": "bytes",
             "mtp_bytes_max": "bytes", "kv_bytes_per_token_max": "exact",
             "state_bytes_per_sequence_max": "exact"}  # fmt: skip
    if not predicts:
        del forms["mtp_bytes_max"]
    name = Cell(short_layout(item.layout), code=True, title=item.layout)
    key = element_id("inventory", "layout", item.layout)
    if not item.possible:
        empty = [Cell("", numeric=True)] * (len(forms) - 1)
        ranks = ledger.cell(f"{pointer}/ranks", "exact")
        why = ledger.told(f"not possible: {item.reason}", pointer)
        return Row([name, ranks, *empty, Cell(""), why], id=key, status="blocked")
    unknown = () if item.weights_bytes_max else ("weights_bytes_max", "weights_bytes_min")
    sent = ", ".join(
        f"{direction} {bytes_text(size)}" for direction, size in item.sent_bytes_per_token.items()
    )
    return Row(
        [
            name,
            *(
                Cell("unknown") if field in unknown else ledger.cell(f"{pointer}/{field}", form)
                for field, form in forms.items()
            ),
            ledger.told(sent, f"{pointer}/sent_bytes_per_token", numeric=False) if sent else Cell(""),
            ledger.told("; ".join(item.notes), pointer) if item.notes else Cell(""),
        ],
        id=key,
    )


def short_layout(layout: str) -> str:
    """The layout without what is 1."""
    return ",".join(part for part in layout.split(",") if not part.endswith("=1")) or "one rank"


def _exchange_table(ledger: Ledger, primitives: Sequence[Primitive]) -> Table:
    rows = [
        Row(
            [
                Cell(item.role, whole=True),
                Cell(item.parallel.upper()),
                Cell(item.primitive, whole=True),
                Cell(item.tensor, whole=True),
                ledger.cell(f"/distribution/primitives/{place}/payload_bytes_per_token", "exact"),
                Cell(item.sent, whole=True),
                Cell(item.why),
            ]
        )
        for place, item in enumerate(primitives)
    ]
    return Table(
        id="inventory--exchange",
        caption="What its ranks exchange when it is split",
        columns=[
            Column("Role"),
            Column("Split by"),
            Column("Primitive"),
            Column("Tensor"),
            Column("Bytes / token", True, "payload in bf16"),
            Column("Sent", help="part of the payload that each of p ranks sends"),
            Column("Because"),
        ],
        rows=rows,
        folded=True,
    )
