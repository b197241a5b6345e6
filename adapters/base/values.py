"""Small frozen values that cross between rooms: facts with a source, anomalies, fingerprints, sizes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Base of all values and records: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Anomaly(Value):
    """A non-fatal observation of an adapter; stages turn it into a finding.

    Attributes:
        code: short stable word of the adapter, e.g. `index_only_tensor`.
        subject: what it is about: a tensor, file, node or operator name.
        message: one sentence with the numbers.
        evidence: file, header, config path or log lines that show it.
    """

    code: str
    subject: str
    message: str
    evidence: str = ""


class Fingerprint(Value):
    """What a target is made of.

    Attributes:
        family: stack major.minor, device architecture and instruction set; results carry over within it.
        exact: every version, driver and kernel package; results are proven only within it.
    """

    family: str
    exact: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Digest over family and exact versions."""
        return digest({"family": self.family, "exact": dict(self.exact)})


class Size(Value):
    """Bytes and elements of some part of a checkpoint."""

    elements: int
    bytes: int


Number = int | float | Literal["NaN", "Infinity", "-Infinity"]


def json_number(value: float) -> Number:
    """`value` as strict JSON can carry it: non-finite floats become their names."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def from_json_number(value: Number) -> float:
    """Inverse of `json_number`."""
    return float(value)


def canonical_json(value: Any) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, no NaN literals."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """First 32 hex digits of SHA-256 over `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:32]
