"""One node of each kind on the target as it will be used: it compiles, runs, and takes other sizes or not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target_spec import TargetSpec

from ..finding import Finding, Subject, make_finding
from ..outcomes import RAN
from ..thresholds import KIND_DEVIATION, KIND_DEVIATION_DEFAULT
from .kind_facts import NO_TIME, compiled_facts, is_known, seconds_of, size_facts
from .kind_rows import KindRows, KindsOn
from .knowledge import KeepKinds, Knowledge, OpenTarget
from .needs import GRAPH_STACKS
from .question import Question
from .record_kinds import KindCompile, KindSeconds, KindShapes

_UNTRIED = "not_run"
_FOR_SIZES = 0.5
"""Share of what time is left after compiling for trying other sizes."""


@dataclass(frozen=True)
class Compiled:
    """What came of the kinds.

    Attributes:
        kinds: each in prefill and decode; empty where they were not tried.
        dynamic: each over other sizes; empty where the target compiles nothing.
        seconds: what each took.
    """

    kinds: Sequence[KindCompile] = ()
    dynamic: Sequence[KindShapes] = ()
    seconds: Sequence[KindSeconds] = ()

    def checked(self, dtype: str) -> str:
        """`each of its N kinds of nodes ran on the target`; empty where one did not, or is far off."""
        if not self.kinds or any(fault(one, dtype) for one in self.kinds):
            return ""
        return f"one node of each of its {len({one.kind for one in self.kinds})} kinds ran on the target"

    def failed(self, dtype: str) -> bool:
        """Whether a kind was tried and is not right."""
        return any(fault(one, dtype) and one.outcome != _UNTRIED for one in self.kinds)


def fault(kind: KindCompile, dtype: str) -> str:
    """Why a kind is not right, or empty."""
    if kind.outcome != RAN:
        return f"{kind.outcome}: {kind.detail}"
    limit = KIND_DEVIATION.get(dtype, KIND_DEVIATION_DEFAULT)
    off = float(kind.deviation) if kind.deviation is not None else 0.0
    return "" if off <= limit else f"deviates by {off:.2g}, {limit:.2g} allowed"


def run_kinds(question: Question, spec: TargetSpec, knowledge: Knowledge) -> Compiled:
    """One node of each kind, compiled and run, and in other sizes: as known, or tried while time is left.

    What is known is read, and starts no worker.

    Args:
        question: with the model's structure.
        spec: the target with what was chosen.
        knowledge: opens it, and holds the time left.
    """
    assert question.skeleton is not None, "whoever asks for kinds says which model"
    try:
        skeleton = question.skeleton()
    except Day0Error:  # the minimal run says so of the same model
        return Compiled()
    dtype = spec.dtype or skeleton.dtype
    on = KindsOn(spec, dtype, knowledge.fingerprint, question.config_digest)
    rows, reason = question.kind_rows, NO_TIME
    if not is_known(on, rows, skeleton) and knowledge.left > 0:
        began = time.monotonic()
        rows, reason = try_kinds(
            skeleton,
            on,
            rows,
            open_target=knowledge.open,
            seconds=knowledge.left,
            memory=question.memory,
            keep=question.keep_kinds,
            progress=question.progress,
        )
        knowledge.timed(began)
    kinds = compiled_facts(on, rows, skeleton, reason)
    return Compiled(kinds, size_facts(on, rows, skeleton), seconds_of(on, rows, skeleton))


def try_kinds(
    skeleton: Skeleton,
    on: KindsOn,
    rows: KindRows,
    *,
    open_target: OpenTarget,
    seconds: float,
    memory: int,
    keep: KeepKinds | None = None,
    progress: Progress = silent,
) -> tuple[KindRows, str]:
    """Tries what is not known of a model's kinds: each compiled and run, then in other sizes.

    Args:
        skeleton: of the model.
        on: which target, in which dtype, under which fingerprint.
        rows: what is known.
        open_target: opens the target.
        seconds: in all; a node that has begun is waited for.
        memory: bytes that the worker may take.
        keep: receives new rows as they come.
        progress: told of each node.

    Returns:
        What is known afterwards, and why the rest is not.
    """
    from .dynamic_shapes import sweep_shapes
    from .kind_walk import KindWalk
    from .kinds import Trials, compile_kinds

    began = time.monotonic()
    try:
        with KindWalk(skeleton, on.dtype, on.spec.options, memory) as walk, open_target(on.spec) as target:
            trials = Trials(walk, target, on, rows, began + seconds, keep, progress)
            target.describe()  # starts the worker, whose start is no part of what a kind takes
            try:
                compile_kinds(trials)
                left = began + seconds - time.monotonic()
                trials.until = time.monotonic() + left * _FOR_SIZES
                sweep_shapes(trials)
            finally:
                rows = trials.rows
    except Day0Error as error:
        return rows, error.message
    return rows, NO_TIME


def findings_of_kinds(spec: TargetSpec, dtype: str, compiled: Compiled) -> Iterator[Finding]:
    """Kinds that do not run, and kinds that are compiled anew for other sizes or fall back."""
    for kind in compiled.kinds:
        why = fault(kind, dtype)
        if not why or kind.outcome == "not_run":
            continue
        named = f" at {kind.op}" if kind.op else ""
        yield make_finding(
            "COV019",
            Subject(kind="node", name=f"{kind.node} {kind.phase}"),
            f"{spec} does not run {kind.node}, one of {kind.nodes} of its kind, in {kind.phase}{named}: "
            f"{why}",
            evidence=[part for part in (kind.op, kind.dtype, kind.shape, kind.place) if part],
        )
    yield from _not_compiled(spec, compiled)
    for sizes in compiled.dynamic:
        if sizes.answer in ("static", "fallback", "failed"):
            cases = [*sizes.recompiled, *(f"{one.case}: {one.outcome}" for one in sizes.failures)]
            yield make_finding(
                "COV020",
                Subject(kind="node", name=sizes.node),
                f"{spec} is {sizes.answer} for {sizes.node}: {sizes.graphs} graphs over all sizes"
                f"{', ' + sizes.fixed if sizes.fixed else ''}.",
                evidence=[*cases[:10], *sizes.breaks[:5]],
                severity="warning" if sizes.failures or sizes.answer == "fallback" else "info",
            )


def _not_compiled(spec: TargetSpec, compiled: Compiled) -> Iterator[Finding]:
    """Kinds that there was no time to compile on a target that compiles: nothing else proves them."""
    left = [one for one in compiled.kinds if one.outcome == _UNTRIED and one.detail == NO_TIME]
    if left and spec.stack in GRAPH_STACKS:
        yield make_finding(
            "COV025",
            Subject(kind="target", name=f"{spec} kinds"),
            f"{len(left)} of {len(compiled.kinds)} kinds of nodes and phases were not compiled on {spec}: "
            f"{NO_TIME}.",
            evidence=[f"{one.node} in {one.phase}" for one in left[:10]],
        )
