"""JSON without NaN literals: what every machine can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from types import NoneType
from typing import Any

from pydantic import BaseModel

from day0.adapters.base.values import json_number


def plain(value: Any) -> Any:
    """The value as JSON types only; non-finite floats become their names.

    Walks models field by field: pydantic's own dump turns a non-finite float inside a sequence into null.
    """
    kind = type(value)
    if kind in (str, int, bool, NoneType):
        return value
    if kind is float:
        return json_number(value)
    if isinstance(value, BaseModel):
        return {name: plain(item) for name, item in value.__dict__.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """One JSON text of the value, the same for equal values; ASCII, since names may hold lone surrogates."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=True, allow_nan=False)
