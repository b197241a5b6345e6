"""From what a worker noted of a run to values: operator calls, their tensors put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from day0.adapters.base.errors import WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Call, Observation, ObservedOperator

if TYPE_CHECKING:
    from torch import Tensor


def as_observation(result: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Observation:
    """A worker's answer to `observe`; contents and the tensors of the run's own result share the blob.

    Raises:
        WorkerError: see `observed_operators`.
    """
    operators, error = result.get("operators"), result.get("error")
    if not isinstance(operators, list):
        raise WorkerError("what was observed is malformed: it has no operators", code="E607")
    said = ""
    if isinstance(error, dict):
        said = " ".join(f"{error.get('kind', 'runtime')}: {error.get('message', '')}".split())[:400]
    return Observation(
        outputs=None if error is not None else Call(result.get("tree"), tensors),
        operators=observed_operators(operators, tensors),
        error=said,
        left_out=int(result.get("left_out", 0)),
    )


def observed_operators(
    entries: Sequence[Mapping[str, Any]], contents: Mapping[str, Tensor]
) -> list[ObservedOperator]:
    """The operators of `day0_worker.observed.Observer`, in order.

    Args:
        entries: as noted.
        contents: name -> values, flat.

    Raises:
        WorkerError: E607, an entry is malformed, or names values that are not there or do not fit.
    """
    try:
        return [_operator(entry, contents) for entry in entries]
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, ValidationError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise WorkerError(f"what was observed is malformed: {text}", code="E607") from error


def _operator(entry: Mapping[str, Any], contents: Mapping[str, Tensor]) -> ObservedOperator:
    noted = list(entry["inputs"])
    results = entry.get("outputs")
    call = OperatorCall(
        op=entry["op"],
        args=entry["args"],
        kwargs=entry["kwargs"],
        dtypes=[one["dtype"] for one in noted],
        shapes=[one["shape"] for one in noted],
        module=entry["module"],
    )
    slots = [one["slot"] for one in (*noted, *(results or ())) if "slot" in one]
    return ObservedOperator(
        call=call,
        inputs=[_tensor(one, contents) for one in noted],
        outputs=None if results is None else [_output(one, contents) for one in results],
        slots=slots,
    )


def _output(noted: Mapping[str, Any], contents: Mapping[str, Tensor]) -> Any:
    if "number" not in noted:
        return _tensor(noted, contents)
    number = noted["number"]
    return float(number["float"]) if isinstance(number, dict) and "float" in number else number


def _tensor(noted: Mapping[str, Any], contents: Mapping[str, Tensor]) -> Tensor | None:
    if not noted["name"]:
        return None
    return _seen(contents[noted["name"]], noted["shape"], noted["layout"])


def _seen(flat: Tensor, shape: Sequence[int], layout: Sequence[int]) -> Tensor:
    """The values in their shape; torch itself refuses what lies beyond them."""
    if len(shape) != len(layout) or min([*shape, *layout], default=0) < 0:
        raise ValueError(f"shape {list(shape)} cannot be seen through {list(layout)}")
    return flat.as_strided(list(shape), list(layout))
