"""What a worker's JSON says, as the values of the contract; what it leaves out has a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.adapters.base.target import Answer, Call
from day0.adapters.base.values import Anomaly


def as_answer(measured: Mapping[str, Any], outputs: Call) -> Answer:
    """Outputs with what was measured beside them."""
    return Answer(
        outputs=outputs,
        seconds=number(measured, "seconds", measured),
        peak_bytes=int(number(measured, "peak_bytes", measured)),
        operators={str(key): str(value) for key, value in dict(measured.get("operators") or {}).items()},
        anomalies=[_anomaly(entry) for entry in measured.get("anomalies") or []],
    )


def strings(result: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts; empty where it is missing."""
    return [str(item) for item in result.get(key) or []]


def number(result: Mapping[str, Any], key: str, otherwise: Mapping[str, Any]) -> float:
    """A number, else that of the same name in `otherwise`, else 0."""
    value = result.get(key, otherwise.get(key, 0))
    return float(value) if isinstance(value, int | float) else 0.0


def _anomaly(entry: Mapping[str, Any]) -> Anomaly:
    return Anomaly(**{key: str(entry.get(key, "")) for key in ("code", "subject", "message", "evidence")})
