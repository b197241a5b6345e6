"""The gate tested: canonical bugs put into a node of the target, and whether the judgement falls.

A bug's effect is the distance between the module with it and the module without, both in fp64 in this
process on the same input, in units of the noise on that input: 5 times the largest share that a measure of
the panel has of its tolerance, so that 5 is what a verdict needs. A bug with less is below the noise of the
target's precision; it is then looked for on a target in fp32, whose noise is some 10^5 times smaller than
that of bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Call
from day0.adapters.base.values import json_number
from day0_worker.bugs import BUGS
from day0_worker.dtypes import torch_dtype

from .. import thresholds
from ..outcomes import detail_of, outcome_of
from ..reference_arm import Arm, ArmError
from ..target_nodes import TargetNodes
from .bug_runs import BugArm, Ran, on_arm, on_target, on_wide_target
from .expert_runs import experts_of
from .judge import judge_all, shares
from .metrics import Distance, distance
from .panel import panel
from .record_parts import BugResult
from .routing import Account, Choice, account
from .values import WrongOutput, distances, joined
from .visit import PassVisit, Visit

UNITS = thresholds.NUMERICS_RATIO
"""Units of noise from which a bug must be found."""
_LEFT_OUT = ("long",)
"""Prompts that show no bug that the others do not."""


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
        dtype: short name of the target's precision.
        wide: None where there is none, or the target itself is in fp32.
        chunk: experts that are in memory at a time.
    """

    exact: BugArm
    nodes: TargetNodes
    dtype: str
    wide: Wide | None = None
    chunk: int = 8


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
        trial = _Trial(visit, bench, other)
        results |= trial.results(there)
    return [results[bug] for bug in wanted]


def matrix(results: Sequence[BugResult]) -> tuple[BugResult, ...]:
    """The rows for the record: a bug that some node can have without those of nodes that cannot.

    Of a bug that none can have it says why not at the node that can have most others.
    """
    had = {result.bug for result in results if result.applies != "no"}
    rows = [result for result in results if result.applies != "no"]
    for bug in {result.bug: None for result in results if result.bug not in had}:
        lacked = [result for result in results if result.bug == bug]
        best = max(lacked, key=lambda one: sum(row.where == one.where for row in rows))
        rows.append(best.model_copy(update={"where": ""}))
    order = list(BUGS)
    return tuple(sorted(rows, key=lambda row: order.index(row.bug) if row.bug in order else len(order)))


@dataclass(frozen=True)
class _Yardstick:
    """What a precision's output is held against.

    Attributes:
        dtype: the precision.
        reference: pass -> output of the reference.
        noise: pass -> output of the noise arm.
        kept: pass -> tokens that neither noise arm nor clean target route otherwise; empty where that is not
            known.
        arms: whether the arms' own choices are those of the visit.
    """

    dtype: torch.dtype
    reference: Mapping[str, Call]
    noise: Mapping[str, Call]
    kept: Mapping[str, Tensor]
    arms: bool

    @property
    def eps(self) -> float:
        return float(torch.finfo(self.dtype).eps)


class _Trial:
    """One node's bugs."""

    def __init__(self, visit: Visit, bench: Bench, other: str) -> None:
        self._visit, self._bench, self._other = visit, bench, other
        self._passes = [
            step for step in visit.passes if step.noise is not None and _group(step) not in _LEFT_OUT
        ]
        self._groups: dict[str, list[PassVisit]] = {}
        for step in self._passes:
            self._groups.setdefault(_group(step), []).append(step)
        self._own = _Yardstick(
            torch_dtype(bench.dtype),
            {step.name: step.reference for step in self._passes},
            {step.name: step.noise for step in self._passes if step.noise is not None},
            self._kept_when_clean(),
            arms=True,
        )
        self._clean = Ran()
        self._wide: _Yardstick | None = None

    def results(self, bugs: Sequence[str]) -> dict[str, BugResult]:
        node, arm = self._visit.node, self._bench.exact
        if not self._passes:
            return {bug: self._result(bug, reason="the noise arm gave nothing here") for bug in bugs}
        try:
            arm.load(node, self._visit.weights)
            self._clean = self._exact("clean")
            effects = {bug: self._effect(bug) for bug in bugs}
        except ArmError as error:
            return {bug: self._result(bug, reason=f"not measured: {error.message}") for bug in bugs}
        finally:
            arm.forget_all()
            arm.free(node)
        return {bug: self._tried(bug, *effects[bug]) for bug in bugs}

    def _exact(self, state: str) -> Ran:
        names = [step.name for step in self._passes]
        return on_arm(
            self._bench.exact,
            self._visit,
            names,
            torch.float64,
            state=f"bug {state}",
            chunk=self._bench.chunk,
        )

    def _effect(self, bug: str) -> tuple[dict[str, float], Ran]:
        """Group of passes -> effect in units of the target's noise, and the outputs."""
        with self._bench.exact.with_bug(bug, self._visit.node):
            ran = self._exact(bug)
        return {group: self._units(ran, group, self._own) for group in self._groups}, ran

    def _units(self, bugged: Ran, group: str, yard: _Yardstick) -> float:
        clean, theirs = self._joined(self._clean.outputs, group), self._joined(bugged.outputs, group)
        reference, noise = self._joined(yard.reference, group), self._joined(yard.noise, group)
        kept = self._flat(yard.kept, group)
        units = [
            _units(distance(t, c, rows=_fits(kept, c)), distance(n, r, rows=_fits(kept, r)), yard.eps)
            for t, c, n, r in zip(theirs, clean, noise, reference, strict=True)
        ]
        return max(units, default=0.0)

    def _tried(self, bug: str, effects: Mapping[str, float], ran: Ran) -> BugResult:
        effect = max(effects.values())
        if effect == 0.0:
            return self._result(bug, reason="none of the prompts changes anything in fp64")
        if effect >= UNITS:
            return self._found(bug, "yes", effect, effects, self._own, self._bench.nodes)
        result = self._result(bug, "below_noise", effect, dtype=self._bench.dtype)
        wide = self._bench.wide
        if wide is None:
            return result.model_copy(update={"reason": "its effect is smaller than rounding"})
        try:
            yard = self._wide_yardstick(wide)
        except ArmError as error:
            return result.model_copy(update={"reason": f"not tried in fp32: {error.message}"})
        finer = {group: self._units(ran, group, yard) for group in self._groups}
        if max(finer.values()) < UNITS:
            said = f"its effect is smaller than rounding in fp32 too: {max(finer.values()):.2g} units"
            return result.model_copy(update={"reason": said})
        return self._found(bug, "below_noise", effect, finer, yard, wide.nodes)

    def _found(
        self,
        bug: str,
        applies: str,
        effect: float,
        effects: Mapping[str, float],
        yard: _Yardstick,
        nodes: TargetNodes,
    ) -> BugResult:
        """Looks for it on the prompts that show most, one after the other."""
        result = self._result(bug, applies, effect, dtype=_short(yard.dtype))
        order = sorted(effects, key=lambda group: (-effects[group], list(self._groups).index(group)))
        try:
            for group in (group for group in order if effects[group] >= UNITS):
                by = self._fails(bug, self._visit.node.name, group, yard, nodes)
                if by:
                    right = not (self._other and self._fails(bug, self._other, group, yard, nodes))
                    return result.model_copy(update={"detected": True, "block_right": right, "by": by})
        except (WorkerError, UnsupportedError) as error:
            return result.model_copy(update={"reason": f"{outcome_of(error)}: {detail_of(error)}"})
        return result.model_copy(update={"detected": False, "block_right": False})

    def _fails(self, bug: str, node: str, group: str, yard: _Yardstick, nodes: TargetNodes) -> str:
        """The measure by which the visited node falls where `node` has the bug; empty where it passes."""
        changed = nodes.changed(f"bug:{bug}@{node}")
        names = [step.name for step in self._groups[group]]
        if any(step.cached for step in self._groups[group]):
            names = [self._visit.passes[0].name, *names]
        chunk, state = self._bench.chunk, f"bug {bug} {node}"
        try:
            if yard is self._own:
                ran = on_target(changed, self._visit, names, state=state, chunk=chunk)
            else:
                ran = on_wide_target(changed, self._visit, names, yard.dtype, state=state, chunk=chunk)
            return self._judged(ran, group, yard)
        finally:
            changed.forget_all()

    def _judged(self, ran: Ran, group: str, yard: _Yardstick) -> str:
        accounts = {step.name: self._account(ran, step, yard) for step in self._groups[group]}
        known = {name: found for name, found in accounts.items() if found is not None}
        if sum(found.facts.unexplained for found in known.values() if found.certain):
            return "unexplained flips"
        kept = {name: found.same & yard.kept.get(name, found.same) for name, found in known.items()}
        node = self._visit.node
        try:
            reference = self._joined(yard.reference, group)
            found = judge_all(
                distances(self._joined(ran.outputs, group), reference, yard.dtype),
                distances(self._joined(yard.noise, group), reference, yard.dtype),
                eps=yard.eps,
                routed=node.feed_forward == "moe" or node.layer_kind == "sparse_indexed",
                kept=self._flat(kept, group),
            )
        except WrongOutput:
            return "shape"
        return found.excess.metric if found is not None and found.excess is not None else ""

    def _account(self, ran: Ran, step: PassVisit, yard: _Yardstick) -> Account | None:
        theirs = ran.routed.get(step.name)
        if theirs is None:
            return None
        node, chosen = self._visit.node, Choice(theirs.ids, theirs.weights)
        ours = self._visit.routers.get(("reference", step.name))
        if yard.arms and ours is not None:
            noise = self._visit.routers.get(("noise_local", step.name))
            return account(
                node.name,
                ours.choice,
                chosen,
                experts=experts_of(node),
                noise=noise.choice if noise else None,
                reference_scores=ours.scores,
                noise_scores=noise.scores if noise else (),
                rows=step.rows,
            )
        clean = self._clean.routed.get(step.name)
        if clean is None:
            return None
        return account(
            node.name, Choice(clean.ids, clean.weights), chosen, experts=experts_of(node), rows=step.rows
        )

    def _kept_when_clean(self) -> dict[str, Tensor]:
        routers = self._visit.routers
        found: dict[str, Tensor] = {}
        for step in self._passes:
            ours, noise = routers.get(("reference", step.name)), routers.get(("noise_local", step.name))
            if ours is not None and noise is not None:
                experts = experts_of(self._visit.node)
                same = account("", ours.choice, noise.choice, experts=experts).same
                target = self._visit.routed.get(step.name)
                if target is not None and target.shape == ours.choice.ids.shape:
                    chosen = Choice(target, ours.choice.weights)
                    same = same & account("", ours.choice, chosen, experts=experts).same
                found[step.name] = same
        return found

    def _wide_yardstick(self, wide: Wide) -> _Yardstick:
        if self._wide is None:
            names = [step.name for step in self._passes]
            node = self._visit.node
            try:
                wide.noise.load(node, self._visit.weights)
                noise = on_arm(
                    wide.noise, self._visit, names, torch.float32, state="bug noise", chunk=self._bench.chunk
                )
            finally:
                wide.noise.forget_all()
                wide.noise.free(node)
            self._wide = _Yardstick(torch.float32, self._clean.outputs, noise.outputs, {}, arms=False)
        return self._wide

    def _joined(self, outputs: Mapping[str, Call], group: str) -> list[Tensor]:
        steps = self._groups[group]
        return joined([outputs[step.name] for step in steps], [step.rows for step in steps])

    def _flat(self, kept: Mapping[str, Tensor], group: str) -> Tensor | None:
        """One mask for the joined passes; None where some pass's is not known."""
        steps = self._groups[group]
        if any(step.name not in kept for step in steps):
            return None
        return torch.cat(
            [kept[step.name] if step.rows is None else kept[step.name][step.rows] for step in steps]
        )

    def _result(
        self, bug: str, applies: str = "no", effect: float = math.nan, *, dtype: str = "", reason: str = ""
    ) -> BugResult:
        return BugResult(
            bug=bug,
            where=self._visit.node.name,
            applies=applies,
            effect=json_number(effect),
            dtype=dtype,
            reason=reason,
        )


def _units(effect: Distance, noise: Distance, eps: float) -> float:
    if effect.exact:
        return 0.0
    if effect.nonfinite or effect.masked:
        return math.inf if effect.nonfinite or effect.misplaced else 0.0
    if effect.scale == 0.0:
        return math.inf
    known = [share for share in shares(panel(effect, noise, eps=eps)).values() if not math.isnan(share)]
    return UNITS * max(known, default=0.0)


def _fits(kept: Tensor | None, tensor: Tensor) -> Tensor | None:
    """The tokens that count, where they are this tensor's."""
    width = tensor.shape[-1] if tensor.dim() else 1
    return kept if kept is not None and kept.numel() * width == tensor.numel() else None


def _group(step: PassVisit) -> str:
    return step.name.partition(".")[0]


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}.get(
        dtype, str(dtype)
    )
