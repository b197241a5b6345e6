"""One node of each kind on the target as it will be used: it compiles, runs, and takes other sizes or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import Progress
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target_spec import TargetSpec

from ..finding import Finding, Subject, make_finding
from ..outcomes import RAN
from ..thresholds import KIND_DEVIATION, KIND_DEVIATION_DEFAULT
from .knowledge import Knowledge
from .record_kinds import KindCompile, KindShapes

_FOR_SIZES = 0.5
"""Share of what time is left after compiling for trying other sizes."""


@dataclass(frozen=True)
class Compiled:
    """What came of the kinds.

    Attributes:
        kinds: each in prefill and decode; empty where they were not tried.
        dynamic: each over other sizes; empty where the target compiles nothing.
        reason: why they were not tried.
    """

    kinds: Sequence[KindCompile] = ()
    dynamic: Sequence[KindShapes] = ()
    reason: str = ""

    def checked(self, dtype: str) -> str:
        """`each of its N kinds of nodes ran on the target`; empty where one did not, or is far off."""
        if not self.kinds or any(fault(one, dtype) for one in self.kinds):
            return ""
        return f"one node of each of its {len({one.kind for one in self.kinds})} kinds ran on the target"


def fault(kind: KindCompile, dtype: str) -> str:
    """Why a kind is not right, or empty."""
    if kind.outcome != RAN:
        return f"{kind.outcome}: {kind.detail}"
    limit = KIND_DEVIATION.get(dtype, KIND_DEVIATION_DEFAULT)
    off = float(kind.deviation) if kind.deviation is not None else 0.0
    return "" if off <= limit else f"deviates by {off:.2g}, {limit:.2g} allowed"


def run_kinds(
    skeleton: Callable[[], Skeleton], spec: TargetSpec, knowledge: Knowledge, progress: Progress
) -> Compiled:
    """Compiles and runs one node of each kind, then in other sizes, while time is left.

    Args:
        skeleton: builds the model's structure.
        spec: the target with what was chosen.
        knowledge: opens it, and holds the time left.
        progress: told of each node.
    """
    from .dynamic_shapes import sweep_shapes
    from .kind_walk import KindWalk
    from .kinds import compile_kinds

    began = time.monotonic()
    left = knowledge.left
    try:
        built = skeleton()
        walk = KindWalk(built, spec.dtype or built.dtype, spec.options)
        with knowledge.open(spec) as target:
            kinds = compile_kinds(walk, target, seconds=left, progress=progress)
            rest = (left - (time.monotonic() - began)) * _FOR_SIZES
            ran = any(kind.outcome == RAN for kind in kinds)
            dynamic = sweep_shapes(walk, target, seconds=rest, progress=progress) if ran and rest > 0 else []
    except Day0Error as error:
        return Compiled(reason=error.message)
    finally:
        knowledge.timed(began)
    return Compiled(tuple(kinds), tuple(dynamic))


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
