"""What a worker's JSON says, as the values of the contract; what it leaves out has a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.target import (
    TARGET_API,
    Answer,
    Call,
    CompileReport,
    Generation,
    LoadReport,
    Paused,
    TargetDescription,
)
from day0.adapters.base.target_spec import TargetSpec
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


def as_paused(key: Any, outputs: Call, measured: Answer, spec: TargetSpec) -> Paused:
    """A run that stands still.

    Raises:
        WorkerError: E607, it does not say what its experts are given.
    """
    import torch

    from day0_worker.trees import TreeError, decode

    try:
        given = decode(outputs.tree, outputs.tensors)
    except (TreeError, TypeError) as error:
        raise WorkerError(f"{spec} stands still with a broken tree: {error}", code="E607") from error
    if not (isinstance(given, list) and [type(value) for value in given] == [torch.Tensor] * 3):
        raise WorkerError(f"{spec} stands still without states, ids and weights of experts", code="E607")
    hidden, ids, weights = given
    numbers = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    fits = hidden.dim() == ids.dim() == 2 and ids.shape == weights.shape and len(hidden) == len(ids)
    if not (numbers and fits):
        shapes = ", ".join(f"{value.dtype} {list(value.shape)}" for value in given)
        raise WorkerError(f"{spec} stands still with states, ids and weights {shapes}", code="E607")
    return Paused(str(key), hidden, ids, weights, measured=measured)


def as_description(result: Mapping[str, Any], spec: TargetSpec) -> TargetDescription:
    """What a target says of itself.

    Raises:
        WorkerError: E607, it is no description, or speaks another version of the contract.
    """
    try:
        description = TargetDescription.model_validate({"api": TARGET_API, **result})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise WorkerError(
            f"{spec} describes itself wrongly at {place}: {first['msg']}", code="E607"
        ) from error
    if description.api != TARGET_API:
        raise WorkerError(
            f"{spec} speaks version {description.api} of the contract, this is {TARGET_API}",
            code="E607",
            remedy="Install versions of Day0 and of the stack's package that fit.",
        )
    return description


def as_report(result: Mapping[str, Any], spec: TargetSpec) -> CompileReport:
    """What was compiled.

    Raises:
        WorkerError: E607, it is no report.
    """
    try:
        return CompileReport.model_validate(result)
    except ValidationError as error:
        raise WorkerError(f"{spec} reports wrongly: {error.errors()[0]['msg']}", code="E607") from error


def as_load_report(answer: Mapping[str, Any]) -> LoadReport:
    """What the target's own loader said."""
    result = answer["result"]
    return LoadReport(
        missing=strings(result, "missing"),
        unexpected=strings(result, "unexpected"),
        mismatched=strings(result, "mismatched"),
        seconds=number(result, "seconds", answer),
        weight_bytes=int(number(result, "weight_bytes", answer)),
    )


def as_generation(answer: Mapping[str, Any], spec: TargetSpec) -> Generation:
    """A continuation.

    Raises:
        WorkerError: E607, it holds something else than tokens.
    """
    result = answer["result"]
    rows = result.get("tokens")
    if not (isinstance(rows, list) and all(isinstance(row, list) for row in rows)):
        raise WorkerError(f"{spec} generated something else than lists of tokens", code="E607")
    return Generation(
        tokens=[[int(token) for token in row] for row in rows],
        first_token_seconds=number(result, "first_token_seconds", answer),
        seconds=number(result, "seconds", answer),
        peak_bytes=int(number(result, "peak_bytes", answer)),
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
