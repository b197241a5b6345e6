"""Files of rows: written one row a line, read as far as they are whole, with what could not be read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..base.values import Fingerprint

Row = TypeVar("Row", bound=BaseModel)

_BEFORE_ROWS = ',\n "rows": ['
"""What stands before the rows, one a line."""
_WORDS = 200
"""Letters of a reason: a damaged file may hold anything."""


@dataclass(frozen=True)
class Salvaged(Generic[Row]):
    """What a file holds.

    Attributes:
        format: of the file; 0 where nothing could be read.
        rows: those that are whole.
        fingerprints: digest -> fingerprint, those that are whole.
        unread: what could not be read, a sentence each.
    """

    format: int = 0
    rows: Sequence[Row] = ()
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    unread: Sequence[str] = ()


def salvage(
    data: bytes, where: str, kind: str, name: str, formats: Collection[int], row: type[Row]
) -> Salvaged[Row]:
    """Reads a file of rows as far as it is sound.

    Args:
        data: of the file.
        where: the file in words, e.g. `the registry file of eager@cpu`.
        kind: key under which the file says what it is of.
        name: that it says there.
        formats: that are known.
        row: type of its rows.
    """
    torn: list[str] = []
    try:
        content, torn = _parsed(data, where)
        if content[kind] != name or content["format"] not in formats:
            raise ValueError(f"it is {kind} {content[kind]!r} in format {content['format']!r}")
        entries, prints = list(content["rows"]), dict(content["fingerprints"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Salvaged(unread=(f"{where} cannot be read: {_reason(error)}",))
    rows, bad = _whole(entries, TypeAdapter(row))
    marks, bad_marks = _whole(list(prints.items()), TypeAdapter(tuple[str, Fingerprint]))
    unread = [
        f"{len(reasons)} of {total} {what} of {where} cannot be read: {reasons[0]}"
        for reasons, total, what in ((bad, len(entries), "rows"), (bad_marks, len(prints), "fingerprints"))
        if reasons
    ]
    return Salvaged(content["format"], rows, dict(marks), (*torn, *unread))


def rows_text(
    kind: str, name: str, version: int, lines: Sequence[str], fingerprints: Mapping[str, Fingerprint]
) -> str:
    """The file's text, one row a line, so that a change is a few lines of a diff.

    Args:
        kind: key under which the file says what it is of.
        name: that it says there.
        version: of the format.
        lines: each row as JSON, in order.
        fingerprints: digest -> fingerprint, of the rows.
    """
    prints = {key: value.model_dump(mode="json") for key, value in sorted(fingerprints.items())}
    head = {kind: name, "format": version, "fingerprints": prints}
    text = json.dumps(head, indent=1, sort_keys=True).removesuffix("\n}")
    return text + _BEFORE_ROWS + "\n  " + ",\n  ".join(lines) + "\n ]\n}\n"


def _parsed(data: bytes, where: str) -> tuple[dict[str, Any], list[str]]:
    """The file's content; of one that is no JSON as a whole, its head and the lines that each are a row."""
    try:
        return json.loads(data.decode()), []
    except ValueError as error:
        head, rows_follow, body = data.decode(errors="replace").partition(_BEFORE_ROWS)
        if not rows_follow:
            raise
        content: dict[str, Any] = json.loads(f"{head}\n}}")
        rows = [row for line in body.splitlines() if (row := _row(line)) is not None]
        if not rows:
            raise
        said = f"{where} is damaged, and its lines that are whole were read: {_reason(error)}"
        return content | {"rows": rows}, [said]


def _row(line: str) -> Any:
    """The row that stands in a line; None where none does, or where letters of it were none."""
    if "\N{REPLACEMENT CHARACTER}" in line:
        return None
    try:
        found = json.loads(line.strip().removesuffix(","))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


_Entry = TypeVar("_Entry")


def _whole(entries: Sequence[Any], adapter: TypeAdapter[_Entry]) -> tuple[list[_Entry], list[str]]:
    """Those entries that are of the type, and why others are not."""
    whole, reasons = [], []
    for entry in entries:
        try:
            whole.append(adapter.validate_python(entry))
        except (ValidationError, RecursionError) as error:
            reasons.append(_reason(error))
    return whole, reasons


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        said = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    elif isinstance(error, KeyError):
        said = f"it has no {error}"
    else:
        said = str(error)
    return (said.splitlines() or [type(error).__name__])[0][:_WORDS]
