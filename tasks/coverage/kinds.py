"""Coverage proved by compiling: one node of each kind goes through the target's compiler and runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from day0.adapters.base.errors import Day0Error, RemoteError, UnsupportedError, WorkerError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, CompileReport, Fragment, Target
from day0.adapters.base.values import json_number

from ..confirmed import confirmed
from ..outcomes import RAN, detail_of, outcome_of
from .kind_facts import PHASES, UNTESTED, is_uncompiled
from .kind_rows import KindRow, KindRows, KindsOn
from .kind_walk import FirstCall, KindWalk, batch

_SEQUENCES, _LENGTH = 2, 13
_states = (f"day0: kinds {number}" for number in itertools.count())
"""A worker keeps caches by name: each time takes a name of its own."""


@dataclass
class Trials:
    """Kinds being tried.

    Attributes:
        walk: over the model, in the target's dtype and with its options.
        target: with the capability `fragment`.
        on: whose rows are made.
        rows: what is known by now.
        until: no node begins after this moment of the monotonic clock.
        keep: receives each new row, as a collection of its own.
        progress: told of each node.
    """

    walk: KindWalk
    target: Target
    on: KindsOn
    rows: KindRows
    until: float = float("inf")
    keep: Callable[[KindRows], None] | None = None
    progress: Progress = silent
    _today: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def late(self) -> bool:
        """Whether no node may begin any more."""
        return time.monotonic() >= self.until

    def outcome(self, kind: str, case: str) -> str:
        """What is known of a kind in a case; empty where nothing is."""
        found = self.on.known(self.rows, kind, case)
        return found[0].outcome if found else ""

    def note(self, node: Node, case: str, outcome: str, detail: str = "", **more: Any) -> None:
        """Lays down a row."""
        if more.get("deviation") is not None:
            more["deviation"] = json_number(more["deviation"])
        row = KindRow(
            kind=node.kind,
            case=case,
            dtype=self.on.dtype,
            options=dict(self.on.spec.options),
            outcome=outcome,
            detail=detail,
            reduced=self.walk.reduction.of(node),
            config=self.on.config,
            date=self._today,
            fingerprint=self.on.fingerprint.digest,
            **more,
        )
        prints = {row.fingerprint: self.on.fingerprint}
        self.rows = self.rows.merged([row], prints)
        if self.keep is not None:
            self.keep(KindRows(self.rows.name).merged([row], prints))


@dataclass(frozen=True)
class Ran:
    """A node that ran.

    Attributes:
        answer: of the target.
        report: of what it compiled; None where it compiles nothing.
        compile_seconds: until the answer, without the execution itself.
    """

    answer: Answer
    report: CompileReport | None
    compile_seconds: float


def compile_kinds(trials: Trials) -> None:
    """Compiles and runs the first node of each kind, in prefill and in one decode step.

    A kind that failed in prefill is not asked to decode. What no time is left for has no row afterwards.
    Kinds of which an inherited row speaks come first.
    """
    firsts = trials.walk.firsts
    due = {kind for kind in firsts if is_uncompiled(trials.on, trials.rows, kind)}
    inherited = {kind for kind in due if trials.outcome(kind, PHASES[0])}
    for kinds in filter(None, (inherited, due - inherited)):
        _compile(trials, kinds)


def _compile(trials: Trials, kinds: Set[str]) -> None:
    walk, state = trials.walk, next(_states)
    done: set[str] = set()
    for phase in PHASES:
        decode = phase == "decode"
        tokens = batch(walk.skeleton.config, _SEQUENCES, 1 if decode else _LENGTH)
        try:
            for first in walk.calls(tokens, state=state, decode=decode):
                node = first.node
                trials.progress(f"coverage {trials.target.spec} kinds", len(done), len(kinds), node.name)
                wanted = node.kind in kinds and not trials.late
                if wanted and not (decode and trials.outcome(node.kind, "prefill") != RAN):
                    _try(trials, first, phase, state)
                    done.add(node.kind)
        except Day0Error as error:
            for kind in kinds - done:
                trials.note(walk.firsts[kind], phase, UNTESTED, detail_of(error))
            break
    walk.forget(state)


def _try(trials: Trials, first: FirstCall, phase: str, state: str) -> None:
    node, expected = first.node, first.expected()
    try:
        ran = run_kind(trials.walk, trials.target, node, first.call, mode=phase, state=state)
    except (WorkerError, UnsupportedError) as error:
        trials.note(node, phase, outcome_of(error), detail_of(error), **place_of(error))
        return
    report = ran.report or CompileReport()
    trials.note(
        node,
        phase,
        *judged(ran.answer.outputs, expected),
        operators=report.operators,
        kernels=report.kernels,
        breaks=report.breaks,
        graphs=report.graphs,
        deviation=_deviation(ran.answer.outputs, expected),
        compile_seconds=ran.compile_seconds,
        run_seconds=round(ran.answer.seconds, 6),
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
    weights = walk.weights(node)

    def attempt() -> Ran:
        began = time.monotonic()
        handle = target.prepare(fragment, call, mode=mode)
        answer = target.run(handle, node.name, weights, call, state=state)
        seconds = round(max(0.0, time.monotonic() - began - answer.seconds), 3)
        try:
            return Ran(answer, target.report(handle), seconds)
        except RemoteError as error:
            if error.kind != "unsupported":
                raise
            return Ran(answer, None, seconds)

    return confirmed(attempt)


def place_of(error: Day0Error) -> Mapping[str, str]:
    """Operator, dtype, shape and node of the graph that an error names, as a row has them."""
    named = error.place if isinstance(error, RemoteError) else {}
    return {
        "op": named.get("op", ""),
        "op_dtype": named.get("dtype", ""),
        "shape": named.get("shape", ""),
        "place": named.get("node", ""),
    }


def judged(outputs: Call, expected: Call) -> tuple[str, str]:
    """Outcome and detail of an output, held against that of the CPU."""
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
