"""One call that a target was given, held against the reference: its status, with what shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from day0.adapters.base.errors import (
    RemoteError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Number, json_number
from day0.adapters.registries.blame import layer_of
from day0_worker.trees import decode

from ..operator_reference import Reference, flat_outputs
from ..outcomes import said
from ..thresholds import SLOW_FACTOR, SLOW_SECONDS, SLOW_TIMINGS
from .comparison import Comparison, compare
from .plan_probe import Trial

_LOG_LINES = 3
_UNDECIDED = ("memory", "import", "key_mismatch")
"""Kinds of a stack's error that say nothing of the operator. What an error of the call itself would look like
is ruled out before: the same call with the same inputs ran on the reference."""


@dataclass(frozen=True)
class Outcome:
    """What became of a trial.

    Attributes:
        trial: what was tried.
        call: in the size in which it was replayed.
        status: out of the design's vocabulary.
        reason: one line; empty for a sound call that was compared in full.
        layer: at fault, out of `registries.row.LAYERS`.
        kind: of the stack's error, where it gave one.
        error: largest deviation from the reference.
        tolerance: what it was held against.
        log: the last lines of a worker that died.
        outputs: of a wrong call, by which it can be told what it is right for.
    """

    trial: Trial
    call: OperatorCall
    status: str
    reason: str = ""
    layer: str = ""
    kind: str = ""
    error: Number | None = None
    tolerance: float | None = None
    log: str = ""
    outputs: Sequence[Any] = ()

    @property
    def refused(self) -> bool:
        """Whether the stack said that it does not run this call, for its shapes or attributes."""
        return self.kind in ("shape", "unsupported", "runtime", "dtype", "missing_operator")


def judge(
    spec: TargetSpec, trial: Trial, call: OperatorCall, reference: Reference, answer: Answer | WorkerError
) -> Outcome:
    """The outcome of one call.

    Args:
        spec: of the target.
        trial: what was tried.
        call: in the size in which it was replayed.
        reference: what it should give.
        answer: what the target gave.
    """
    if isinstance(answer, WorkerError):
        return _failed(spec, trial, call, answer)
    outputs = outputs_of(answer)
    if call.attributes.get("sorted") is False:
        outputs, reference = _ordered(call, outputs), _ordered_reference(call, reference)
    found = compare(call.op, outputs, reference)
    facts: dict[str, Any] = {"error": _number(found), "tolerance": found.tolerance}
    if not found.agrees:
        reason = f"{found.reason} ({trial.asked.spread} inputs)"
        layer = "compiler" if layer_of(spec.stack, "missing_operator") == "compiler" else "library"
        return Outcome(trial, call, "wrong", reason, layer, outputs=outputs, **facts)
    changed = next((one for one in answer.anomalies if one.code == "input_changed"), None)
    if changed is not None:
        return Outcome(trial, call, "wrong", _line(changed.message), "library", **facts)
    fallback = next((one for one in answer.anomalies if one.code == "cpu_fallback"), None)
    if fallback is not None:
        reason = _line(f"it ran on the host: {fallback.evidence or fallback.message}")
        return Outcome(trial, call, "fallback", reason, "adapter", **facts)
    unmatched = reference.kind == "own" and not found.reason
    reason = "no wider reference: compared in its own dtype" if unmatched else found.reason
    return Outcome(trial, call, "native", reason, **facts)


def _ordered(call: OperatorCall, outputs: Sequence[Any]) -> Sequence[Any]:
    """Values with their positions, largest first: without `sorted` an operator may give them in any order."""
    if len(outputs) != 2 or any(not isinstance(one, torch.Tensor) or not one.dim() for one in outputs):
        return outputs
    dim = int(call.attributes.get("dim", -1))
    order = outputs[0].argsort(dim=dim, descending=True)
    return [one.gather(dim, order) for one in outputs]


def _ordered_reference(call: OperatorCall, reference: Reference) -> Reference:
    like = None if reference.like is None else _ordered(call, reference.like)
    return replace(reference, values=_ordered(call, reference.values), like=like)


def outputs_of(answer: Answer) -> Sequence[Any]:
    """The tensors and numbers of an answer, in order."""
    return flat_outputs(decode(answer.outputs.tree, answer.outputs.tensors))


def is_slow(answer: Answer, reference: Reference) -> bool:
    """Whether a timing is beyond what the host's CPU takes for the same call by far."""
    return reference.seconds > 0 and answer.seconds > max(SLOW_SECONDS, SLOW_FACTOR * reference.seconds)


def slow(outcome: Outcome) -> Outcome:
    """The outcome of a call that every timing showed to be slow."""
    reason = (
        f"takes more than {SLOW_FACTOR:.0f} times as long as on the host's CPU, in {SLOW_TIMINGS} timings"
    )
    return replace(outcome, status="slow", reason=reason, layer="library")


def _number(found: Comparison) -> Any:
    return None if found.error is None else json_number(float(f"{found.error:.2g}"))


def _failed(spec: TargetSpec, trial: Trial, call: OperatorCall, error: WorkerError) -> Outcome:
    if isinstance(error, RemoteError):
        return _remote(spec, trial, call, error)
    message = _line(error.message)
    if isinstance(error, WorkerTimeout):
        return Outcome(trial, call, "hang", message, "runtime")
    if isinstance(error, WorkerOutOfMemory):
        return Outcome(trial, call, "unknown", message, "worker")
    log = " | ".join(error.log[-_LOG_LINES:])[:600]
    status, layer = ("crash", "runtime") if isinstance(error, WorkerCrashed) else ("unknown", "worker")
    return Outcome(trial, call, status, message, layer, log=_line(log))


def _remote(spec: TargetSpec, trial: Trial, call: OperatorCall, error: RemoteError) -> Outcome:
    reason = _line(f"{error.kind}: {said(error)}")
    layer = layer_of(spec.stack, error.kind, error.message)
    status = "unknown" if error.kind in _UNDECIDED else "missing"
    if error.kind == "double_fault":
        status, layer = "double_fault", "adapter"
    return Outcome(trial, call, status, reason, layer, error.kind)


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
