"""Which sizes a target takes without compiling anew: one node of each kind in every case of `size_cases`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from day0.adapters.base.errors import Day0Error, UnsupportedError, WorkerError
from day0.adapters.base.target import CompileReport
from day0_worker.stack import StackError

from ..outcomes import RAN, detail_of, outcome_of
from .kind_facts import ALIKE, UNCOMPILED, UNTESTED, is_open
from .kind_walk import FirstCall, KindWalk, batch
from .kinds import Trials, place_of, run_kind
from .size_cases import Case, before, cases_of, changed, sized

_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)


@dataclass
class _Seen:
    """What a kind's graphs of one phase were, in this worker."""

    report: CompileReport = field(default_factory=CompileReport)
    trees: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Sweep:
    trials: Trials
    sizes: tuple[int, int]
    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)


def sweep_shapes(trials: Trials) -> None:
    """Runs the first node of each kind in other sizes than it was compiled for.

    Length and batch of the example are sizes that no other dimension has, and the target is told that they
    vary. Padding gives a node a mask it had not before: that this makes another graph is no recompilation. A
    kind that failed in prefill is not asked, nor is what an earlier run has learnt.
    """
    sweep = _Sweep(trials, example_sizes(trials.walk))
    cases = cases_of(trials.walk.skeleton.config)
    for place, case in enumerate(cases):
        if trials.late:
            return
        trials.progress(f"coverage {trials.target.spec} sizes", place, len(cases), case.name)
        later = [case, *(other for other in cases[place:] if case in before(other))]
        kinds = {
            kind
            for kind, node in trials.walk.firsts.items()
            if case.concerns(node) and any(is_open(trials.on, trials.rows, node, other) for other in later)
        }
        if kinds and case.widths:
            _run_other_widths(trials, case, kinds)
        elif kinds:
            _run(sweep, sized(case, *sweep.sizes), kinds)


def example_sizes(walk: KindWalk) -> tuple[int, int]:
    """Sequences and length of the example: numbers that are no size of a weight and not in the config."""
    taken = walk.sizes | set(_numbers(walk.skeleton.config))
    free = [prime for prime in _PRIMES if prime not in taken and prime + 1 not in taken]
    return (free[0], free[1]) if len(free) > 1 else (_PRIMES[0], _PRIMES[1])


def _run_other_widths(trials: Trials, case: Case, kinds: set[str]) -> None:
    """A case of other widths, whose model is another one: its graphs say nothing of the model's own."""
    walk = trials.walk
    skeleton = walk.skeleton.model_copy(update={"config": changed(walk.skeleton.config, case.widths or {})})
    try:
        with KindWalk(skeleton, walk.dtype, walk.options, walk.memory) as other:
            inner = replace(trials, walk=other)
            firsts = {kind: walk.firsts[kind] for kind in kinds}
            same = {kind for kind, node in firsts.items() if other.shapes(node) == walk.shapes(node)}
            for kind in same:
                inner.note(firsts[kind], case.name, ALIKE)
            _run(_Sweep(inner, example_sizes(other)), case, kinds - same)
            trials.rows = inner.rows
    except (Day0Error, StackError) as error:  # not every model can be built so
        for kind in kinds:
            trials.note(walk.firsts[kind], case.name, UNTESTED, " ".join(str(error).split()))


def _run(sweep: _Sweep, case: Case, kinds: Set[str]) -> None:
    """One case, all of these kinds."""
    trials, left = sweep.trials, set(kinds)
    config, state = trials.walk.skeleton.config, f"day0: sizes {case.name}"
    tokens = batch(config, case.sequences, case.length)
    try:
        for first in _calls(trials, left, tokens, state, mask=case.mask):
            if not case.decode:
                left.discard(first.node.kind)
                _try(sweep, first, case, state)
            elif not _filled(sweep, first, case, state):
                left.discard(first.node.kind)
        if case.decode and left:
            for first in _calls(trials, left, batch(config, case.sequences, 1), state, decode=True):
                left.discard(first.node.kind)
                _try(sweep, first, case, state)
    except Day0Error as error:
        for kind in left:
            trials.note(trials.walk.firsts[kind], case.name, UNTESTED, detail_of(error))
    finally:
        trials.walk.forget(state)


def _calls(
    trials: Trials, kinds: set[str], tokens: Sequence[Sequence[int]], state: str, **how: Any
) -> Iterator[FirstCall]:
    """The calls of these kinds, no further than the last of them; when it is late, none of them is left."""
    waiting = set(kinds)
    for first in trials.walk.calls(tokens, state=state, **how):
        if trials.late:
            kinds.clear()
            return
        if first.node.kind in waiting:
            waiting.remove(first.node.kind)
            yield first
        if not waiting:
            return


def _filled(sweep: _Sweep, first: FirstCall, case: Case, state: str) -> bool:
    """Whether the target filled the cache that a decode step needs; here it is filled, too."""
    first.expected()
    try:
        _asked(sweep, first, replace(case, decode=False), state)
    except (WorkerError, UnsupportedError) as error:
        reason = f"the tokens before it failed: {detail_of(error)}"
        sweep.trials.note(first.node, case.name, outcome_of(error), reason, **place_of(error))
        return False
    return True


def _try(sweep: _Sweep, first: FirstCall, case: Case, state: str) -> None:
    trials, node = sweep.trials, first.node
    try:
        report, new, anew = _asked(sweep, first, case, state)
    except (WorkerError, UnsupportedError) as error:
        trials.note(node, case.name, outcome_of(error), detail_of(error), **place_of(error))
        return
    if report is None:
        trials.note(node, case.name, UNCOMPILED)
        return
    trials.note(
        node,
        case.name,
        RAN,
        graphs=new,
        anew=anew and not case.widths,
        breaks=report.breaks,
        fixed=report.fixed,
    )


def _asked(sweep: _Sweep, first: FirstCall, case: Case, state: str) -> tuple[CompileReport | None, int, bool]:
    """What was compiled so far, how many graphs are new, and whether there was one for other sizes before.

    What the target gives is what the nodes after it take: it says nothing of values, and on a processor the
    same again is most of a long case's time.
    """
    sequences, length = sweep.sizes
    mode = "decode" if case.decode else "prefill"
    varying = (length, length + 1, sequences) if case.decode else (length, sequences)
    trials, node = sweep.trials, first.node
    ran = run_kind(trials.walk, trials.target, node, first.call, mode=mode, state=state, varying=varying)
    if first.output is None and ran.answer.outputs.tensors:
        first.output = ran.answer.outputs
    if ran.report is None:
        return None, 0, False
    known = sweep.seen.setdefault((node.kind, mode), _Seen())
    # A worker that began anew counts from nothing.
    graphs = ran.report.graphs
    new = graphs - known.report.graphs if graphs >= known.report.graphs else graphs
    tree = str(first.call.tree)
    anew = bool(new) and tree in known.trees
    known.report = ran.report
    known.trees.add(tree)
    return ran.report, new, anew


def _numbers(value: object) -> Iterator[int]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
