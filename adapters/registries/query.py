"""Questions to a registry: which rows, by operator, dtype, status and grade."""

from __future__ import annotations

from ..base.values import Fingerprint
from .registry import Known, Registry
from .row import DECLARED


def select(
    registry: Registry,
    *,
    op: str = "",
    dtype: str = "",
    status: str = "",
    grade: str = "",
    fingerprint: Fingerprint | None = None,
) -> list[Known]:
    """The rows that answer to all that is asked, sorted by key.

    Args:
        registry: to look through.
        op: full name, or name without overload (`aten.mm`).
        dtype: that stands somewhere in the dtype tuple.
        status: out of the design's vocabulary.
        grade: `measured`, `inherited` or `declared`.
        fingerprint: under which rows are graded, one a key; None: every row as it was recorded, graded
            `measured` or `declared`.
    """
    if fingerprint is None:
        found = [
            Known(row, DECLARED if row.method == DECLARED else "measured") for row in registry.all_rows()
        ]
    else:
        keys = {row.key for row in registry.all_rows()}
        found = [known for key in keys if (known := registry.lookup(key, fingerprint)) is not None]
    kept = [
        known
        for known in found
        if (not op or known.row.op == op or known.row.op.rpartition(".")[0] == op)
        and (not dtype or dtype in known.row.dtypes)
        and (not status or known.row.status == status)
        and (not grade or known.grade == grade)
    ]
    return sorted(kept, key=lambda known: (known.row.key, known.row.fingerprint))
