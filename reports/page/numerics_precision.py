"""Precision policy: the lowest precision that each role tolerates, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import Precision, PrecisionRow

from ..pointers import pointer_to
from ..words import listed, number_text
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Group, Row, Stat, Table, settle

_DASH = "\N{EN DASH}"


def precision_group(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, limit: int) -> Group | None:
    """The recommended policy and all that was tried; None where precision was not swept."""
    found = facts.precision
    if found is None:
        return None
    stays = [row for row in found.policy if not _rows_of(found, row, found.policy[row])]
    lowered = len(found.policy) - len(stays)
    told = (
        f"{lowered} of {len(found.policy)} roles tolerate a lower precision"
        if found.policy
        else "No role was tried"
    )
    high = f"; {listed(stays, 4)} must stay as {'it is' if len(stays) == 1 else 'they are'}" if stays else ""
    tables = []
    if found.policy:
        tables.append(settle(_policy(ledger, found, slug)))
    if found.rows:
        tables.append(settle(_tried(ledger, found, slug, rest, limit)))
    return Group(
        id=f"numerics--{slug}--precision",
        title="Precision policy",
        lead=f"{told}{high}.",
        stats=[
            Stat("KL divergence", ledger.cell("/precision/kl", "number"), "nats, the whole policy in force")
        ]
        if found.policy
        else (),
        tables=tables,
    )


def _rows_of(found: Precision, role: str, dtype: str) -> Sequence[int]:
    """Places of the rows that tried this role in this dtype."""
    return [place for place, row in enumerate(found.rows) if (row.role, row.dtype) == (role, dtype)]


def _policy(ledger: Ledger, found: Precision, slug: str) -> Table:
    rows = []
    for role, dtype in found.policy.items():
        tried = _rows_of(found, role, dtype)
        tolerated = [place for place in tried if found.rows[place].tolerates] or tried
        cost = _costs(ledger, tolerated[0]) if tolerated else [Cell(_DASH, numeric=True)] * 3
        scheme = found.rows[tolerated[0]].scheme if tolerated else "as it is"
        stays = not tolerated
        rows.append(
            Row(
                [
                    Cell(role, below=scheme),
                    ledger.cell(pointer_to("precision", "policy", role), "text", code=True),
                    Cell("stays" if stays else "may be lowered"),
                    *cost,
                ]
            )
        )
    return Table(
        id=f"numerics--{slug}--policy",
        caption="Recommended precision of each role",
        columns=[Column("Role"), Column("Lowest"), Column("So it"), *_cost_columns()],
        rows=rows,
    )


def _tried(ledger: Ledger, found: Precision, slug: str, rest: str, limit: int) -> Table:
    places = pick(len(found.rows), limit, lambda place: found.rows[place].tolerates)
    return Table(
        id=f"numerics--{slug}--lowered",
        caption="What was tried: one role lowered, the rest as it is",
        columns=[
            Column("Role"),
            Column("Dtype"),
            *_cost_columns(),
            Column("Relative L2", True, "Largest of a node of that role, on the reference's input."),
            Column("Top-1", True, "Agreement at the output."),
            Column("Worst node"),
        ],
        rows=[_row(ledger, found.rows[place], place) for place in places],
        total=len(found.rows),
        rest=rest,
        folded=True,
    )


def _row(ledger: Ledger, row: PrecisionRow, place: int) -> Row:
    base, look = f"/precision/rows/{place}", "pass" if row.tolerates else "warn"
    return Row(
        [
            Cell(row.role, status=look, below="tolerates it" if row.tolerates else "does not tolerate it"),
            Cell(row.dtype, code=True, below=row.scheme),
            *_costs(ledger, place),
            ledger.cell(f"{base}/rel_l2", "number"),
            ledger.cell(f"{base}/top1", "percent"),
            Cell(row.worst, code=bool(row.worst)),
        ]
    )


def _cost_columns() -> Sequence[Column]:
    return (
        Column("KL", True, "Nats a position at the output, all nodes of the role lowered."),
        Column("Over noise", True, "Worst node's error in units of the target's own rounding."),
        Column("Weights", True, "Of the role, in that precision."),
    )


def _costs(ledger: Ledger, place: int) -> Sequence[Cell]:
    base = f"/precision/rows/{place}"
    return [
        ledger.cell(f"{base}/kl", "number"),
        ledger.cell(f"{base}/ratio", "number"),
        ledger.cell(f"{base}/bytes", "bytes"),
    ]


def policy_words(found: Precision) -> str:
    """The policy on one line."""
    kept = ", ".join(f"{role} {dtype}" for role, dtype in found.policy.items())
    return f"{kept or 'none'}; KL {number_text(found.kl)} nats with all of it in force"
