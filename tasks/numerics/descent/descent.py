"""From a node that is wrong on the reference's input down to the module and the operator that make it so.

First the modules below it, each as a node of its own on what the reference gives it, in the order in which
they are called: the first that is wrong by itself, then those below that one. Where all below a module are
right and it is not, the fault is in its own code, in how it puts them together, or shows only while the
whole runs. Then the operators of the innermost one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...reference_arm import ArmError
from ..walk.visit import PassVisit, Visit
from .fragments import MOST_CALLS, Arms, Child, Moment, Trial, children, is_leaf, judged, try_part
from .fragments import moments as moments_of
from .operator_repro import repro
from .operator_search import Searched, Way, guilty_operator
from .part_runs import whole

_NAMED = 4


@dataclass(frozen=True)
class Descent:
    """What the search came to.

    Attributes:
        fragment: full path of the innermost module that is at fault; empty where none is found.
        op: the operator in it, e.g. `aten.silu.default`; empty where none is found.
        detail: how the search went, in a few clauses.
        repro: a script that shows the operator again; empty where none can.
    """

    fragment: str = ""
    op: str = ""
    detail: str = ""
    repro: str = ""


def descend(visit: Visit, searched: Searched, on: str = "") -> Descent:
    """Looks for what makes a node wrong.

    Args:
        visit: of a node that is wrong, or fails, on the reference's input.
        searched: arms and target.
        on: prompt on which it was found to be wrong (`decode` for all steps of decoding); empty: any.
    """
    way = Way()
    found = _moment(visit, searched.arms, on, way)
    if found is None:
        return Descent(detail="no pass went through the node")
    moment, step = found
    top = Child(whole(visit), moment, step.reference, step.local)
    try:
        child, below = _innermost(top, searched, way)
        return _at_operator(child, searched, way, narrowed=child is not top, below=below)
    except ArmError as error:
        way.say(f"the reference cannot be followed further: {error.message}")
        return Descent(detail=str(way))


def _moment(visit: Visit, arms: Arms, on: str, way: Way) -> tuple[Moment, PassVisit] | None:
    """The first pass that fails or is wrong by itself; else the one that is furthest off."""
    part, furthest, largest = whole(visit), None, -math.inf
    for moment, step in zip(moments_of(visit), visit.passes, strict=True):
        if on and step.name.partition(".")[0] != on:
            continue
        trial = Trial("it fails")
        if step.local is not None and step.noise is not None:
            trial = judged(Child(part, moment, step.reference), step.local, step.noise, arms)
        ratio = float(trial.judgement.metrics.ratio) if trial.judgement else 0.0
        if trial.fault or ratio > largest or furthest is None:
            furthest, largest = (moment, step), ratio
        if trial.fault:
            break
    if furthest is not None and furthest[1] is not visit.passes[0]:
        way.say(f"on {furthest[1].name}")
    return furthest


def _innermost(child: Child, searched: Searched, way: Way) -> tuple[Child, bool]:
    """The innermost module that is wrong by itself, and whether modules below it were tried and are right."""
    while True:
        if is_leaf(child.part, searched.arms):
            return child, False
        found, skipped = children(child.part, child.moment, searched.arms)
        wrong, trial, right = _first_wrong(found, searched, skipped)
        name = child.part.node.name
        if skipped:
            told = [f"{path} ({why})" for path, why in list(skipped.items())[:_NAMED]]
            way.say(f"not tried by themselves: {', '.join(told)}")
        if wrong is None:
            if right:
                way.say(f"the modules in {name} are right by themselves ({_some(right)})")
            return child, bool(right)
        before = f" ({_some(right)} before it right)" if right else ""
        way.say(f"{wrong.part.node.name} is wrong by itself: {trial.fault}{before}")
        child = wrong


def _first_wrong(
    found: Sequence[Child], searched: Searched, skipped: dict[str, str]
) -> tuple[Child | None, Trial, list[str]]:
    """The first call of a module below that is wrong by itself, and the modules before it that are right."""
    right: list[str] = []
    for child in found[:MOST_CALLS]:
        trial = try_part(child, searched.arms, searched.nodes)
        if trial.fault:
            return replace(child, local=trial.local), trial, right
        if trial.skipped:
            skipped.setdefault(child.part.path, trial.skipped)
        elif child.part.path not in right:
            right.append(child.part.path)
    for child in found[MOST_CALLS:]:
        skipped.setdefault(child.part.path, f"only {MOST_CALLS} calls are tried")
    return None, Trial(), right


def _at_operator(child: Child, searched: Searched, way: Way, *, narrowed: bool, below: bool) -> Descent:
    part = child.part
    suspect = guilty_operator(child, searched, way)
    if suspect is None:
        return Descent(fragment=part.node.name if narrowed else "", detail=str(way))
    inside = suspect.call.module
    where = f"{part.node.name}.{inside}" if inside else part.node.name
    if below and inside:
        way.say(f"{where} is right by itself and wrong while {part.node.name} runs")
    way.say(f"{suspect.call.op} in {where}: {suspect.why}")
    return Descent(where, suspect.call.op, str(way), repro(suspect, searched.target, where))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
