"""The distribution as CSV: every layer and role on a row, exact integers, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io

from .record_distribution import Distribution

COLUMNS = (
    "part", "name", "index", "kind", "feed_forward", "role", "tensors", "params", "active_params", "bytes",
    "kv_bytes_per_token", "window", "state_bytes_per_sequence", "input", "inner", "output", "tp", "sp", "ep",
    "pp",
)  # fmt: skip
"""The header; it changes by columns that are added at its end."""

_COUNTS = ("tensors", "params", "active_params", "bytes")  # unknown where no tensor is
_DIRECTIONS = ("tp", "sp", "ep", "pp")
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for the start of a formula (OWASP, CSV injection)


def distribution_csv(distribution: Distribution) -> str:
    """One header and a line a row, as RFC 4180 has it but for the line ends, which are plain newlines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in distribution.rows:
        unknown = () if row.tensors else _COUNTS
        cells = [
            None if column in unknown else getattr(row, column)
            for column in COLUMNS
            if column not in _DIRECTIONS
        ]
        needs = [" ".join(row.communication.get(direction, ())) for direction in _DIRECTIONS]
        writer.writerow([_safe(cell) for cell in (*cells, *needs)])
    return text.getvalue()


def _safe(cell: str | int | None) -> str:
    """The cell without control characters; an apostrophe keeps a hostile name from being a formula."""
    if cell is None:
        return ""
    if isinstance(cell, int):
        return str(cell)
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
