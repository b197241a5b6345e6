"""Coverage proved by compiling: one node of each kind goes through the target's compiler and runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from day0.adapters.base.errors import Day0Error, RemoteError, UnsupportedError, WorkerError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, CompileReport, Fragment, Target
from day0.adapters.base.values import json_number

from ..confirmed import confirmed
from ..outcomes import RAN, detail_of, outcome_of
from .kind_walk import KindWalk, batch
from .record_kinds import KindCompile

PHASES = ("prefill", "decode")
_SEQUENCES, _LENGTH = 2, 13
_states = (f"day0: kinds {number}" for number in itertools.count())
"""A worker keeps caches by name: each time takes a name of its own."""


@dataclass(frozen=True)
class Ran:
    """A node that ran.

    Attributes:
        answer: of the target.
        report: of what it compiled; None where it compiles nothing.
    """

    answer: Answer
    report: CompileReport | None


def compile_kinds(
    walk: KindWalk, target: Target, *, seconds: float, progress: Progress = silent
) -> list[KindCompile]:
    """Compiles and runs the first node of each kind, in prefill and in one decode step.

    A kind that failed in prefill is not asked to decode. What no time is left for is `not_run`.

    Args:
        walk: over the model, in the target's dtype and with its options.
        target: with the capability `fragment`.
        seconds: in all; a node that has begun is waited for.
        progress: told of each node.
    """
    kinds = _Kinds(walk, target, next(_states), time.monotonic() + seconds)
    total = len(PHASES) * len(walk.firsts)
    for phase in PHASES:
        tokens = batch(walk.skeleton.config, _SEQUENCES, _LENGTH if phase == "prefill" else 1)
        try:
            for node, call, expected in walk.calls(tokens, state=kinds.state, decode=phase == "decode"):
                progress(f"coverage {target.spec} kinds", len(kinds.found), total, node.name)
                kinds.found[node.kind, phase] = kinds.tried(node, call, expected, phase)
        except Day0Error as error:
            for node in walk.firsts.values():
                unasked = _fact(walk, node, phase, "not_run", detail=detail_of(error))
                kinds.found.setdefault((node.kind, phase), unasked)
            break
    walk.forget(kinds.state)
    return list(kinds.found.values())


@dataclass
class _Kinds:
    walk: KindWalk
    target: Target
    state: str
    until: float
    found: dict[tuple[str, str], KindCompile] = field(default_factory=dict)

    def tried(self, node: Node, call: Call, expected: Call, phase: str) -> KindCompile:
        before = self.found.get((node.kind, "prefill"))
        if phase == "decode" and before is not None and before.outcome != RAN:
            reason = f"its prefill ended as {before.outcome}"
            return _fact(self.walk, node, phase, "not_run", detail=reason)
        if time.monotonic() >= self.until:
            return _fact(self.walk, node, phase, "not_run", detail="no time was left")
        try:
            ran = run_kind(self.walk, self.target, node, call, mode=phase, state=self.state)
        except (WorkerError, UnsupportedError) as error:
            return _fact(self.walk, node, phase, outcome_of(error), detail_of(error), **place_of(error))
        report = ran.report or CompileReport()
        return _fact(
            self.walk,
            node,
            phase,
            *_judged(ran.answer.outputs, expected),
            operators=report.operators,
            kernels=report.kernels,
            breaks=report.breaks,
            deviation=_deviation(ran.answer.outputs, expected),
        )


def run_kind(
    walk: KindWalk,
    target: Target,
    node: Node,
    call: Call,
    *,
    mode: str,
    state: str,
    varying: Sequence[int] = (),
) -> Ran:
    """Compiles a node if the target has not yet, and runs it.

    Args:
        walk: with the node's weights.
        target: with the capability `fragment`.
        node: first of its kind.
        call: its arguments.
        mode: `prefill` or `decode`.
        state: name of the sequence whose cache the target keeps.
        varying: see `Fragment`.

    Raises:
        WorkerError: it failed, and where its worker died, twice.
        UnsupportedError: the target does not run nodes.
    """
    fragment = Fragment(
        node=node.name,
        kind=node.kind,
        architecture=walk.skeleton.architecture,
        config=walk.skeleton.config,
        dtype=walk.dtype,
        options={},
        varying=varying,
    )
    weights = {name: {"value": tensor} for name, tensor in walk.weights[node.name].items()}

    def attempt() -> Ran:
        handle = target.prepare(fragment, call, mode=mode)
        answer = target.run(handle, node.name, weights, call, state=state)
        try:
            return Ran(answer, target.report(handle))
        except RemoteError as error:
            if error.kind != "unsupported":
                raise
            return Ran(answer, None)

    return confirmed(attempt)


def place_of(error: Day0Error) -> dict[str, str]:
    """Operator, dtype, shape and node of the graph that an error names."""
    named = error.place if isinstance(error, RemoteError) else {}
    return {
        "op": named.get("op", ""),
        "dtype": named.get("dtype", ""),
        "shape": named.get("shape", ""),
        "place": named.get("node", ""),
    }


def _judged(outputs: Call, expected: Call) -> tuple[str, str]:
    shapes, wanted = _shapes(outputs), _shapes(expected)
    if shapes != wanted:
        return "shape", f"output {shapes}, expected {wanted}"
    bad = [tensor for tensor in _floats(outputs) if not bool(torch.isfinite(tensor).all())]
    known = [tensor for tensor in _floats(expected) if not bool(torch.isfinite(tensor).all())]
    if bad and not known:
        return "nonfinite", "the output holds NaN or infinity, that of the CPU does not"
    return RAN, ""


def _floats(call: Call) -> list[torch.Tensor]:
    return [tensor for tensor in call.tensors.values() if tensor.is_floating_point()]


def _shapes(call: Call) -> list[list[int]]:
    return [list(tensor.shape) for tensor in _floats(call)]


def _deviation(outputs: Call, expected: Call) -> float | None:
    """Relative L2 error of the first output; None where there is nothing to compare."""
    got, wanted = _floats(outputs)[:1], _floats(expected)[:1]
    if not got or not wanted or got[0].shape != wanted[0].shape:
        return None
    norm = float(wanted[0].double().norm())
    return float((got[0].double() - wanted[0].double()).norm()) / norm if norm > 0 else None


def _fact(walk: KindWalk, node: Node, phase: str, outcome: str, detail: str = "", **more: Any) -> KindCompile:
    if more.get("deviation") is not None:
        more["deviation"] = json_number(more["deviation"])
    return KindCompile(
        kind=node.kind,
        node=node.name,
        nodes=len(walk.skeleton.kinds[node.kind]),
        role=node.role,
        layer_kind=node.layer_kind,
        feed_forward=node.feed_forward,
        phase=phase,
        outcome=outcome,
        detail=detail,
        **more,
    )
