"""Which release of transformers knows a model type, from a table shipped with Day0.

The table is made by `collect_transformers_types`; transformers itself is not imported (that takes 3.7 s).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from day0.adapters.base.values import Value

TABLE = Path(__file__).parent / "transformers_types.json"


class TypeSupport(Value):
    """What the table says of one model type.

    Attributes:
        since: first minor release that knows it; empty for none.
        dropped: first one that does not any more; empty for none.
        newest: newest minor release that was checked.
    """

    since: str = ""
    dropped: str = ""
    newest: str = ""


class _Table(Value):
    checked: Sequence[str]
    since: Mapping[str, str]
    dropped: Mapping[str, str]


def type_support(model_type: str) -> TypeSupport:
    """Since when transformers knows a model type."""
    table = _read()
    return TypeSupport(
        since=table.since.get(model_type, ""),
        dropped=table.dropped.get(model_type, ""),
        newest=table.checked[-1],
    )


def minor_key(version: str) -> tuple[int, int]:
    """Sorts `4.9` before `4.51`."""
    major, _, minor = version.partition(".")
    return int(major), int(minor)


@cache
def _read() -> _Table:
    return _Table(**json.loads(TABLE.read_text()))
