"""Several operators in one request: one after the other, or as one graph that is cut down to what fails."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from day0_worker.error_places import locate

if TYPE_CHECKING:
    from day0_worker.stack import Stack

STEP = "day0: running operators"
"""Begins the line in the worker's log that names what is being run: the parent reads it after a death."""


@dataclass(frozen=True)
class OperatorJob:
    """One operator of a batch, decoded.

    Attributes:
        index: its place in the request.
        op: e.g. `aten.mm.default`.
        args: positional arguments, tensors on the CPU.
        kwargs: keyword arguments, likewise.
    """

    index: int
    op: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass
class OperatorResult:
    """What became of one operator of a batch.

    Attributes:
        value: what it returned, unless it failed.
        error: how it failed.
        measured: seconds, peak bytes, implementations and remarks, as `Stack.end_call` gives them.
    """

    value: Any = None
    error: Optional[BaseException] = None
    measured: Dict[str, Any] = field(default_factory=dict)


Work = Callable[[Sequence[OperatorJob]], Sequence[Any]]
"""Runs operators and returns what each of them returned."""


def one_by_one(stack: Any, jobs: Sequence[OperatorJob]) -> List[OperatorResult]:
    """Each by the stack's `run_op`; one that fails leaves its error in its place."""

    def alone(part: Sequence[OperatorJob]) -> Sequence[Any]:
        return [stack.run_op(job.op, job.args, job.kwargs) for job in part]

    return [result for job in jobs for result in _attempt(stack, [job], alone)]


def in_one_graph(stack: Stack, jobs: Sequence[OperatorJob], execute: Work) -> List[OperatorResult]:
    """All as one graph; a graph that fails is cut until the failing operators stand alone.

    The seconds of an answer are its equal share of the graph's, which has one clock for all.

    Args:
        stack: whose clock and remarks are used; it runs what stands alone by `run_op`.
        jobs: independent of each other.
        execute: runs them as one graph.

    Returns:
        One result for each job, in their order.
    """
    done: Dict[int, OperatorResult] = {}
    waiting: List[List[OperatorJob]] = [list(jobs)] if jobs else []
    while waiting:
        part = waiting.pop()
        if len(part) == 1:
            done[part[0].index] = one_by_one(stack, part)[0]
            continue
        results = _attempt(stack, part, execute)
        if len(results) < len(part):
            waiting += _cut(part, results[0].error)
            continue
        for job, result in zip(part, results):  # noqa: B905  # equal lengths; Python 3.9 has no strict
            done[job.index] = result
    return [done[job.index] for job in jobs]


def _cut(part: List[OperatorJob], error: Optional[BaseException]) -> List[List[OperatorJob]]:
    """What the error names apart from the rest, else two halves."""
    texts = [str(error), str(error.__cause__) if error is not None else ""]
    named = locate("\n".join(texts)).get("op", "")
    suspects = [job for job in part if job.op == named]
    if suspects and len(suspects) < len(part):
        return [[job for job in part if job.op != named], suspects]
    middle = len(part) // 2
    return [part[middle:], part[:middle]]


def _attempt(stack: Stack, jobs: Sequence[OperatorJob], work: Work) -> List[OperatorResult]:
    """A result for each job, or a single one with the error of them all."""
    from day0_worker.measure import Measure

    stack.begin_call()
    whole = Measure()
    try:
        with _step(stack, jobs), _no_collection(), whole.span(stack.device):
            values = work(jobs)
    except Exception as error:  # whatever a stack raises is the answer to these operators
        return [OperatorResult(error=error, measured=stack.end_call())]
    if not stack.measure.spans:
        stack.measure = whole
    measured = stack.end_call()
    measured["seconds"] /= len(jobs)
    return [OperatorResult(value=value, measured=measured) for value in values]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python from looking through all of torch for garbage time and again, a tenth of an export."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def _step(stack: Stack, jobs: Sequence[OperatorJob]) -> Iterator[None]:
    """Names the operators in the log and ends the process when they never come back."""
    places = " ".join(str(job.index) for job in jobs)
    sys.stderr.write(f"{STEP} {places}: {', '.join(sorted({job.op for job in jobs}))[:400]}\n")
    sys.stderr.flush()
    if stack.patience > 0:
        faulthandler.dump_traceback_later(stack.patience, exit=True, file=sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
