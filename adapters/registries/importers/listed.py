"""What all importers share: rows of a list, how large a list may be, and which reader a file takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import InputError
from ...base.values import Fingerprint
from ..registry import Registry
from ..row import DECLARED, RegistryRow

MAX_BYTES = 16 * 2**20
"""The longest list known, ONNX Runtime's, has 0.3 MB."""

MAX_ROWS = 200_000
_SHOWN = 80

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Entry:
    """One line of a list.

    Attributes:
        op: in the vocabulary of operators.
        dtypes: of the inputs in order, as far as the list says.
        supported: whether the list claims it for the version at hand.
        reason: the list's own words where it does not.
        schema_hash: of the schema, where the list has one.
    """

    op: str
    dtypes: tuple[str, ...] = ()
    supported: bool = True
    reason: str = ""
    schema_hash: str = ""


def as_registry(
    name: str, form: str, version: str, entries: Iterable[Entry], malformed: Sequence[str] = ()
) -> Registry:
    """Declared rows of a list; of two lines for one row the one that claims support stays.

    Args:
        name: `STACK@DEVICE` that the rows are for.
        form: of the list.
        version: that it was read for.
        entries: of the list.
        malformed: entries that cannot be read; the registry's `unread` says how many.

    Raises:
        InputError: E173, there are more lines than a list has.
    """
    fingerprint = Fingerprint(family=f"declared {form}", exact={"list": form, "version": version})
    rows: dict[str, RegistryRow] = {}
    for entry in entries:
        row = RegistryRow(
            op=entry.op,
            dtypes=entry.dtypes,
            status="native" if entry.supported else "missing",
            reason=entry.reason,
            schema_hash=entry.schema_hash,
            generator=form,
            fingerprint=fingerprint.digest,
            method=DECLARED,
        )
        known = rows.get(row.key)
        if known is None or known.status != "native":
            rows[row.key] = row
        if len(rows) > MAX_ROWS:
            raise unreadable(form, f"it has more than {MAX_ROWS} rows")
    registry = Registry(name).merged(rows.values(), {fingerprint.digest: fingerprint})
    if not malformed:
        return registry
    such = " ".join(malformed[0].split())[:_SHOWN]
    return registry.with_unread(f"{len(malformed)} entries of the list cannot be read, such as {such!r}")


def read_text(path: Path) -> str:
    """A list's text.

    Raises:
        InputError: E173, it is not there, too large, or no text.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise unreadable(path.name, f"it has more than {MAX_BYTES} bytes")
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path.name, str(error)) from error


def unreadable(what: str, why: str) -> InputError:
    """The error for a list that cannot be used."""
    return InputError(
        f"the support list {what!r} cannot be read: {' '.join(why.split())[:200]}",
        code="E173",
        remedy="Give an op_plugin_functions.yaml, or an OperatorKernels.md of ONNX Runtime.",
    )


def version_number(text: str) -> tuple[int, ...]:
    """`v2.10` -> (2, 10), so that versions compare as numbers; what has none comes first."""
    return tuple(int(part[:9]) for part in _NUMBERS.findall(text[:64]))
