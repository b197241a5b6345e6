"""The gate tested: canonical bugs put into a node of the target, and whether the judgement falls.

A bug's effect is the distance between the module with it and the module without, both in fp64 in this
process on the same input, in units of the noise on that input, by the measure of the panel that shows most;
a mean gain counts as many units as it is times its tolerance, in which `NUMERICS_RATIO` are one. A bug with
less than `NUMERICS_BUG_UNITS` is below the noise of the target's precision; it is then looked for on a target
in fp32, whose noise is some 10^5 times smaller than that of bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.values import json_number
from day0_worker.bugs import BUGS
from day0_worker.dtypes import short_dtype, torch_dtype

from ... import thresholds
from ...outcomes import detail_of, outcome_of
from ...reference_arm import Arm, ArmError
from ...target_nodes import TargetNodes
from ..record_parts import BugResult
from ..walk.routing import Choice
from ..walk.visit import Visit
from .bug_runs import BugArm, Ran, on_arm, on_target, on_wide_target
from .visit_judge import VisitJudge, Yardstick, own_yardstick


@dataclass(frozen=True)
class Wide:
    """A target in fp32, for bugs that the target's own precision hides.

    Attributes:
        nodes: of it.
        noise: the reference in fp32.
    """

    nodes: TargetNodes
    noise: Arm


@dataclass(frozen=True)
class Bench:
    """Who runs nodes with bugs.

    Attributes:
        exact: the reference in fp64.
        nodes: of the target.
        dtype: short name of the precision of weights and activations.
        wide: None where there is none, or the target itself is in fp32.
        chunk: experts that are in memory at a time.
        precision: of the target where its products are in a narrower one; empty: `dtype`.
    """

    exact: BugArm
    nodes: TargetNodes
    dtype: str
    wide: Wide | None = None
    chunk: int = 8
    precision: str = ""


def nodes_to_try(skeleton: Skeleton) -> Mapping[str, str]:
    """Node into which bugs are put -> another of its kind, empty where there is none: one of each kind.

    The last of its kind, since by then a stack that counts layers wrongly does so.
    """
    found: dict[str, str] = {}
    for names in skeleton.kinds.values():
        called = [name for name in names if skeleton.node(name).called]
        if called:
            found[called[-1]] = called[0] if len(called) > 1 else ""
    return found


def try_bugs(visit: Visit, bench: Bench, other: str = "", bugs: Sequence[str] = ()) -> list[BugResult]:
    """Puts each bug into the visited node, and says whether it would be found.

    Args:
        visit: of the node.
        bench: who runs it.
        other: another node of the kind; a target with the bug in that one must pass at this one.
        bugs: names; empty: all.
    """
    wanted = [bug for bug in BUGS if not bugs or bug in bugs]
    missing = bench.exact.lacking(visit.node)
    results = {
        bug: BugResult(bug=bug, where=visit.node.name, reason=missing[bug])
        for bug in wanted
        if bug in missing
    }
    there = [bug for bug in wanted if bug not in missing]
    if there:
        results |= _Trial(visit, bench, other).results(there)
    return [results[bug] for bug in wanted]


def matrix(results: Sequence[BugResult]) -> tuple[BugResult, ...]:
    """The rows for the record: a bug that some node can have without those of nodes that cannot.

    Of a bug that none can have it says why not at the node that can have most others.
    """
    had = {result.bug for result in results if result.applicability != "no"}
    rows = [result for result in results if result.applicability != "no"]
    for bug in {result.bug: None for result in results if result.bug not in had}:
        lacked = [result for result in results if result.bug == bug]
        best = max(lacked, key=lambda one: sum(row.where == one.where for row in rows))
        rows.append(best.model_copy(update={"where": ""}))
    order = list(BUGS)
    return tuple(sorted(rows, key=lambda row: order.index(row.bug) if row.bug in order else len(order)))


class _Trial:
    """One node's bugs."""

    def __init__(self, visit: Visit, bench: Bench, other: str) -> None:
        self._visit, self._bench, self._other = visit, bench, other
        self._yard = own_yardstick(visit, torch_dtype(bench.dtype))
        self._judge = VisitJudge(visit, self._yard)
        self._clean = Ran()
        self._fine: VisitJudge | None = None

    def results(self, bugs: Sequence[str]) -> dict[str, BugResult]:
        """Each bug's result; the node can have all of them."""
        node, arm = self._visit.node, self._bench.exact
        if not self._judge.passes:
            return {bug: self._result(bug, reason="the noise arm gave nothing here") for bug in bugs}
        try:
            arm.load(node, self._visit.weights)
            self._clean = self._exact("clean")
            changed = {bug: self._changed(bug) for bug in bugs}
        except ArmError as error:
            return {bug: self._result(bug, reason=f"not measured: {error.message}") for bug in bugs}
        finally:
            arm.forget_all()
            arm.free(node)
        return {bug: self._tried(bug, changed[bug]) for bug in bugs}

    def _exact(self, state: str) -> Ran:
        names = [step.name for step in self._judge.passes]
        state, chunk = f"bug {state}", self._bench.chunk
        return on_arm(self._bench.exact, self._visit, names, torch.float64, state=state, chunk=chunk)

    def _changed(self, bug: str) -> Ran:
        with self._bench.exact.with_bug(bug, self._visit.node):
            return self._exact(bug)

    def _effects(self, judge: VisitJudge, changed: Ran) -> dict[str, float]:
        """Prompt -> effect in units of noise."""
        return {group: judge.units(self._clean, changed, group) for group in judge.groups}

    def _tried(self, bug: str, changed: Ran) -> BugResult:
        effects = self._effects(self._judge, changed)
        effect = max(effects.values())
        if effect == 0.0:
            return self._result(bug, reason="none of the prompts changes anything in fp64")
        if effect >= thresholds.NUMERICS_BUG_UNITS:
            return self._found(bug, "yes", effect, effects, self._yard.dtype)
        own = self._bench.precision or self._bench.dtype
        result = self._result(bug, "below_noise", effect, dtype=own)
        wide = self._bench.wide
        if wide is None:
            return result.model_copy(update={"reason": "its effect is smaller than rounding"})
        try:
            finer = self._effects(self._fine_judge(wide), changed)
        except ArmError as error:
            return result.model_copy(update={"reason": f"not tried in fp32: {error.message}"})
        found = self._found(bug, "below_noise", effect, finer, torch.float32)
        if not found.detected and max(finer.values()) < thresholds.NUMERICS_BUG_UNITS:
            said = f"its effect is smaller than rounding in fp32 too: {max(finer.values()):.2g} units"
            return result.model_copy(update={"reason": said})
        return found

    def _found(
        self, bug: str, applies: str, effect: float, effects: Mapping[str, float], dtype: torch.dtype
    ) -> BugResult:
        """Looks for it on the prompts that show most, one after the other."""
        own = self._bench.precision if dtype == self._yard.dtype else ""
        result = self._result(bug, applies, effect, dtype=own or short_dtype(dtype))
        least = min(thresholds.NUMERICS_BUG_UNITS, max(effects.values()))
        enough = [group for group in effects if effects[group] >= least]
        try:
            for group in sorted(enough, key=lambda group: -effects[group]):
                by = self._fails(bug, self._visit.node.name, group, dtype)
                if by:
                    right = not (self._other and self._fails(bug, self._other, group, dtype))
                    said = by if group == next(iter(self._judge.groups)) else f"{by} on {group}"
                    return result.model_copy(update={"detected": True, "block_right": right, "by": said})
        except (WorkerError, UnsupportedError) as error:
            return result.model_copy(update={"reason": f"{outcome_of(error)}: {detail_of(error)}"})
        return result.model_copy(update={"detected": False, "block_right": False})

    def _fails(self, bug: str, node: str, group: str, dtype: torch.dtype) -> str:
        """The measure by which the visited node falls where `node` has the bug; empty where it passes."""
        wide = self._bench.wide if dtype != self._yard.dtype else None
        nodes = (wide.nodes if wide else self._bench.nodes).changed(f"bug:{bug}@{node}")
        judge = self._fine_judge(wide) if wide else self._judge
        # Bugs of experts choose them by the rows that they meet, which have to be those of the fp64 run.
        names = [step.name for step in judge.passes] if self._visit.experts else judge.names(group)
        state, chunk = f"bug {bug} {node}", self._bench.chunk
        try:
            if wide:
                ran = on_wide_target(nodes, self._visit, names, dtype, state=state, chunk=chunk)
            else:
                ran = on_target(nodes, self._visit, names, state=state, chunk=chunk)
            return judge.fails(ran, group)
        finally:
            nodes.forget_all()

    def _fine_judge(self, wide: Wide) -> VisitJudge:
        """Holds outputs in fp32 against the clean module in fp64 and the reference in fp32.

        Raises:
            ArmError: the reference fails in fp32.
        """
        if self._fine is None:
            names, node = [step.name for step in self._judge.passes], self._visit.node
            try:
                wide.noise.load(node, self._visit.weights)
                noise = on_arm(
                    wide.noise, self._visit, names, torch.float32, state="bug", chunk=self._bench.chunk
                )
            finally:
                wide.noise.forget_all()
                wide.noise.free(node)
            choices = {name: Choice(one.ids, one.weights) for name, one in self._clean.routed.items()}
            yard = Yardstick(torch.float32, self._clean.outputs, noise.outputs, choices)
            self._fine = VisitJudge(self._visit, yard)
        return self._fine

    def _result(
        self, bug: str, applies: str = "no", effect: float = math.nan, *, dtype: str = "", reason: str = ""
    ) -> BugResult:
        return BugResult(
            bug=bug,
            where=self._visit.node.name,
            applicability=applies,
            effect=json_number(effect),
            dtype=dtype,
            reason=reason,
        )
