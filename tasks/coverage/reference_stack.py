"""The reference as a stack of its own: whatever it does to a process, it does to a worker's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0_worker import Stack, StackError
from day0_worker.operator_inputs import make_inputs

from ..operator_reference import NoReference, Reference, compute_reference
from .shrink import shrink

VERB = "day0.reference"
"""Stands in the place of an operator's name; the one argument is the job as JSON."""


class ReferenceStack(Stack):
    """Makes calls smaller and runs them in fp64, fp32 or a loop, and in their own dtypes."""

    name = "reference"

    def __init__(self, device: str, count: int, dtype: str | None, options: Mapping[str, str]) -> None:
        super().__init__(device, count, dtype, options)
        # The target's worker runs beside this one: threads would wait for each other.
        torch.set_num_threads(1)

    def describe(self) -> dict[str, Any]:
        """See `Stack`."""
        return {
            "capabilities": ["op"],
            "dtypes": {},
            "devices": [],
            "fingerprint": {"family": f"torch {torch.__version__}", "exact": {}},
        }

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The answer to one job: `{"call": OperatorCall, "seed": 20, "spread": "unit", "limit": 1048576}`.

        Returns:
            `call`, made smaller where it was larger than the limit, with its `inputs` and `values`, `like`,
            `kind` and `seconds` of its reference; or `none`, why there is no reference.
        """
        if op != VERB:
            raise StackError(f"the reference knows no {op!r}", "unsupported")
        job = json.loads(args[0])
        call = shrink(OperatorCall.model_validate(job["call"]), job["limit"])
        if call is None:
            return {"none": "no smaller form of the call is valid"}
        encoded = call.model_dump(mode="json")
        inputs = make_inputs(encoded, job["seed"], job["spread"])
        try:
            reference = compute_reference(encoded, inputs)
        except NoReference as error:
            return {"none": str(error), "call": json.dumps(encoded)}
        return {"call": json.dumps(encoded), "inputs": inputs, **_sent(reference)}


def _sent(reference: Reference) -> dict[str, Any]:
    like = reference.like
    return {
        "values": [_real(value) for value in reference.values],
        "like": None if like is None else [_real(value) for value in like],
        "kind": reference.kind,
        "seconds": reference.seconds,
    }


def _real(value: Any) -> Any:
    """A complex tensor as pairs of real ones: the worker's protocol knows no 128-bit complex numbers."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return {"pairs": torch.view_as_real(value.resolve_conj()).contiguous()}
    return value


def received(sent: Mapping[str, Any]) -> Reference:
    """Inverse of what the stack does to a reference before it sends it."""
    like = sent["like"]
    return Reference(
        values=[_whole(value) for value in sent["values"]],
        like=None if like is None else [_whole(value) for value in like],
        kind=str(sent["kind"]),
        seconds=float(sent["seconds"]),
    )


def _whole(value: Any) -> Any:
    # A tensor off the wire lies wherever its bytes were; complex arithmetic needs them aligned to a pair.
    return torch.view_as_complex(value["pairs"].clone()) if isinstance(value, dict) else value
