"""One captured call replayed on a target and held against the reference: a registry row with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.errors import (
    RemoteError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
    WorkerUnusable,
)
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Target
from day0.adapters.base.values import json_number
from day0.adapters.registries.row import RegistryRow
from day0_worker.operator_inputs import SPREADS, make_inputs
from day0_worker.operators import resolve
from day0_worker.trees import decode

from ..confirmed import confirmed
from ..thresholds import PROBE_ELEMENTS
from .comparison import Comparison, compare
from .reference import NoReference, Reference, compute_reference, flat_outputs
from .shrink import shrink

SEED = 20
_RANGED = frozenset(
    ["_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "scaled_dot_product_attention"]
)
_LOG_LINES = 3

_REMOTE = {
    "missing_operator": ("missing", "library"),
    "dtype": ("missing", "library"),
    "shape": ("missing", "library"),
    "unsupported": ("missing", "adapter"),
    "runtime": ("missing", "runtime"),
    "memory": ("unknown", "worker"),
    "import": ("unknown", "adapter"),
    "key_mismatch": ("unknown", "adapter"),
}
"""Kind of a stack's error -> status and layer at fault. What an error of the call itself would look like is
ruled out
before: the same call with the same inputs ran on the reference."""


def replay(target: Target, call: OperatorCall, fingerprint: str, seed: int = SEED) -> RegistryRow:
    """Runs a call on the target, once for each spread of inputs, and says what became of it.

    A worker that dies or never answers is a result; the next call finds a fresh one.

    Args:
        target: must be able to run single operators.
        call: as captured; replayed smaller where it is large.
        fingerprint: digest of the target's fingerprint.
        seed: of the inputs.

    Raises:
        WorkerUnusable: no worker starts at all.
        UnsupportedError: the target runs no single operators.
    """
    smaller = shrink(call, PROBE_ELEMENTS)
    if smaller is None:
        return _row(call, fingerprint, seed, status="unknown", reason="no smaller form of the call is valid")
    facts: dict[str, Any] = {"status": "unknown", "reason": ""}
    for spread in _spreads(smaller):
        facts = _once(target, smaller, seed, spread, facts)
        if facts["status"] != "native":
            break
    return _row(smaller, fingerprint, seed, **facts)


def _spreads(call: OperatorCall) -> Sequence[str]:
    """Both ranges where a function of single values is at work; moving and adding values knows no range."""
    floating = any(dtype.startswith(("fp", "bf", "complex")) for dtype in call.dtypes)
    function = resolve(call.op)
    ranged = torch.Tag.pointwise in function.tags or call.op.split(".")[1] in _RANGED
    return SPREADS if floating and ranged else SPREADS[:1]


def _row(call: OperatorCall, fingerprint: str, seed: int, **facts: Any) -> RegistryRow:
    return RegistryRow(
        op=call.op,
        dtypes=call.dtypes,
        ranks=[len(shape) for shape in call.shapes],
        result_dtype=call.result_dtype,
        variant=call.variant,
        shapes=call.shapes,
        probe=call.signature,
        seed=seed,
        fingerprint=fingerprint,
        **facts,
    )


def _once(
    target: Target, call: OperatorCall, seed: int, spread: str, before: Mapping[str, Any]
) -> dict[str, Any]:
    encoded = call.model_dump(mode="json")
    tensors = make_inputs(encoded, seed, spread)
    try:
        reference = compute_reference(encoded, tensors)
    except NoReference as error:
        return {"status": "unknown", "reason": str(error)}
    try:
        answer = confirmed(lambda: target.run_op(call, [tensor.clone() for tensor in tensors]))
    except (WorkerUnusable, UnsupportedError):
        raise
    except WorkerError as error:
        return _failed(error)
    outputs = flat_outputs(decode(answer.outputs.tree, answer.outputs.tensors))
    return _judged(compare(call.op, outputs, reference), reference, spread, before)


def _judged(
    outcome: Comparison, reference: Reference, spread: str, before: Mapping[str, Any]
) -> dict[str, Any]:
    error = None if outcome.error is None else json_number(float(f"{outcome.error:.2g}"))
    facts = {"error": error, "tolerance": outcome.tolerance, "reason": outcome.reason}
    if not outcome.agrees:
        return {
            **facts,
            "status": "wrong",
            "layer": "library",
            "reason": f"{outcome.reason} ({spread} inputs)",
        }
    if reference.kind == "own" and not outcome.reason:
        facts["reason"] = "no wider reference: compared in its own dtype"
    earlier = before.get("error")
    if isinstance(earlier, float) and (error is None or float(earlier) > float(error)):
        facts |= {"error": earlier, "tolerance": before.get("tolerance")}
    return {**facts, "status": "native"}


def _failed(error: WorkerError) -> dict[str, Any]:
    """Status, layer and one line of evidence of a call that gave no output."""
    if isinstance(error, RemoteError):
        status, layer = _REMOTE.get(error.kind, ("missing", "runtime"))
        return {"status": status, "layer": layer, "reason": f"{error.kind}: {_line(error.message)}"}
    if isinstance(error, WorkerTimeout):
        return {"status": "hang", "layer": "runtime", "reason": _line(error.message)}
    if isinstance(error, WorkerOutOfMemory):
        return {"status": "unknown", "layer": "worker", "reason": _line(error.message)}
    tail = " | ".join(error.log[-_LOG_LINES:])
    reason = _line(f"{error.message}: {tail}" if tail else error.message)
    status = "crash" if isinstance(error, WorkerCrashed) else "unknown"
    return {"status": status, "layer": "runtime" if status == "crash" else "worker", "reason": reason}


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
