"""Which sizes a target takes without compiling anew: lengths, batches and paddings, one node of each kind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from day0.adapters.base.errors import Day0Error, UnsupportedError, WorkerError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import CompileReport, Target

from ..outcomes import detail_of, outcome_of
from ..thresholds import SWEEP_LENGTH
from .kind_walk import KindWalk, batch
from .kinds import place_of, run_kind
from .record_kinds import KindShapes, ShapeFailure

LENGTHS = (1, 7, 127, 128, 129)
_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_SEQUENCES = 2


@dataclass(frozen=True)
class Case:
    """One forward of the sweep.

    Attributes:
        name: as the record has it.
        sequences: in the batch.
        length: of each.
        padding: tokens of padding before the shortest one.
        experts: whether it is for kinds with experts only: fewer tokens than leave none of them idle.
    """

    name: str
    sequences: int
    length: int
    padding: int = 0
    experts: bool = False

    @property
    def mask(self) -> list[list[int]] | None:
        """1 for tokens, 0 for padding, which grows with the row; None without."""
        if not self.padding:
            return None
        rows = range(self.sequences)
        pads = [self.padding * row // max(1, self.sequences - 1) for row in rows]
        return [[0] * pad + [1] * (self.length - pad) for pad in pads]


@dataclass
class _Seen:
    graphs: int = 0
    recompiled: list[str] = field(default_factory=list)
    failures: list[ShapeFailure] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    report: CompileReport = field(default_factory=CompileReport)
    trees: set[str] = field(default_factory=set)


def sweep_shapes(
    walk: KindWalk, target: Target, *, seconds: float, progress: Progress = silent
) -> list[KindShapes]:
    """Runs the first node of each kind in other sizes than it was compiled for.

    Length and batch of the example are sizes that no other dimension has, and the target is told that they
    vary. Padding gives a node a mask it had not before: that this makes another graph is no recompilation.

    Args:
        walk: over the model, in the target's dtype and with its options.
        target: with the capability `fragment`; one that compiles nothing has no answers here.
        seconds: in all; a node that has begun is waited for.
        progress: told of each case.
    """
    until = time.monotonic() + seconds
    sequences, length = example_sizes(walk)
    example = Case("example", sequences, length)
    cases = [example, *_cases(walk.skeleton.config, example)]
    seen = {kind: _Seen() for kind in walk.firsts}
    for place, case in enumerate(cases):
        progress(f"coverage {target.spec} shapes", place, len(cases), case.name)
        done = set()
        try:
            for node, ran in _runs(walk, target, case, (length, sequences), seen, until):
                done.add(node.kind)
                if ran is None:
                    return []
        except Day0Error as error:
            for kind in set(seen) - done:
                seen[kind].untested.append(f"{case.name}: {detail_of(error)}")
    return [_answer(node, seen[kind]) for kind, node in walk.firsts.items()]


def example_sizes(walk: KindWalk) -> tuple[int, int]:
    """Sequences and length of the example: numbers that are no size of a weight and not in the config."""
    taken = {size for each in walk.weights.values() for value in each.values() for size in value.shape}
    taken |= set(_numbers(walk.skeleton.config))
    free = [prime for prime in _PRIMES if prime not in taken and prime + 1 not in taken]
    return (free[0], free[1]) if len(free) > 1 else (_PRIMES[0], _PRIMES[1])


def _cases(config: Mapping[str, Any], example: Case) -> Iterator[Case]:
    for length in LENGTHS:
        yield Case(f"length {length}", _SEQUENCES, length)
    window = _window(config)
    if window:
        yield Case(f"length {window + 1}, beyond the window", 1, window + 1)
    yield Case("batch 1", 1, 7)
    yield Case("batch 3", 3, 7)
    yield Case("one token, idle experts", 1, 1, experts=True)
    # The first has the example's sizes: a mask makes another graph, which is then compiled for all sizes.
    yield replace(example, name="ragged, padded by up to 5", padding=5)
    yield Case("ragged, padded by up to 100", _SEQUENCES, 127, padding=100)


def _runs(
    walk: KindWalk,
    target: Target,
    case: Case,
    varying: Sequence[int],
    seen: Mapping[str, _Seen],
    until: float,
) -> Iterator[tuple[Node, CompileReport | None]]:
    """Each kind in one case, noted in `seen`; None where the target compiles nothing."""
    limit = int(walk.skeleton.config.get("max_position_embeddings") or case.length)
    state = f"day0: shapes {case.name}"
    if case.length > min(limit, SWEEP_LENGTH):
        raise Day0Error(f"longer than {min(limit, SWEEP_LENGTH)} tokens", code="E463")
    tokens = batch(walk.skeleton.config, case.sequences, case.length)
    try:
        for node, call, _ in walk.calls(tokens, state=state, mask=case.mask):
            known = seen[node.kind]
            if case.experts and node.feed_forward != "moe":
                yield node, known.report
                continue
            if time.monotonic() >= until:
                known.untested.append(f"{case.name}: no time was left")
                yield node, known.report
                continue
            try:
                ran = run_kind(walk, target, node, call, mode="prefill", state=state, varying=varying)
            except (WorkerError, UnsupportedError) as error:
                known.failures.append(_failure(case, error))
                yield node, known.report
                continue
            if ran.report is not None:
                _note(known, case, ran.report, str(call.tree))
            yield node, ran.report
    finally:
        walk.forget(state)


def _note(known: _Seen, case: Case, report: CompileReport, tree: str) -> None:
    """What one run changed; a worker that began anew counts from nothing."""
    new = report.graphs - known.report.graphs if report.graphs >= known.report.graphs else report.graphs
    known.graphs += new
    if new and tree in known.trees:
        known.recompiled.append(case.name)
    known.trees.add(tree)
    breaks = tuple(dict.fromkeys([*known.report.breaks, *report.breaks]))
    known.report = report.model_copy(update={"breaks": breaks, "fixed": known.report.fixed or report.fixed})


def _failure(case: Case, error: Day0Error) -> ShapeFailure:
    return ShapeFailure(
        case=case.name, outcome=outcome_of(error), op=place_of(error)["op"], detail=detail_of(error)
    )


def _answer(node: Node, seen: _Seen) -> KindShapes:
    # torch compiles for a size of 1 apart from all others, whatever it is told (its `0/1 specialisation`).
    others = [name for name in seen.recompiled if name not in _ONES]
    if not seen.trees:
        answer = "failed" if seen.failures else "unknown"
    elif seen.report.breaks:
        answer = "fallback"
    else:
        answer = "static" if seen.report.fixed or others else "dynamic"
    return KindShapes(
        kind=node.kind,
        node=node.name,
        role=node.role,
        answer=answer,
        graphs=seen.graphs,
        recompiled=seen.recompiled,
        fixed=seen.report.fixed,
        breaks=seen.report.breaks,
        failures=seen.failures,
        untested=seen.untested,
    )


_ONES = ("length 1", "batch 1", "one token, idle experts")


def _window(config: Mapping[str, Any]) -> int:
    """Tokens that a sliding or chunked attention sees; 0 where all see all."""
    text = config.get("text_config")
    part = {**config, **text} if isinstance(text, Mapping) else config
    for name in ("sliding_window", "attention_chunk_size", "local_attention_window_size"):
        if isinstance(part.get(name), int) and part.get("use_sliding_window", True):
            return int(part[name])
    return 0


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
