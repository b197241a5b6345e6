"""The operator of a module that makes it wrong: observed while the target runs it, or tried one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Call, Observation, Paused, Target

from ...outcomes import detail_of
from ...reference_arm import Arm, ArmError
from ...target_nodes import TargetNodes
from ..measures.values import joined
from .fragments import Arms, Child, judged
from .operator_effect import with_changes
from .operator_faults import Suspect, suspects
from .operator_singly import singly
from .operator_trace import Trace, aligned, trace, trace_experts, with_attributes
from .part_runs import CHUNK, given_to_experts

OBSERVED_BYTES = 2**30
"""Bytes of tensors that one observed run may send: those of a layer of 4,096 numbers wide over some 128
tokens are a twentieth of it, attention scores of 2,048 tokens over 32 heads in bf16 a quarter."""


@dataclass(frozen=True)
class Searched:
    """Who is asked.

    Attributes:
        arms: who says what is right.
        nodes: the model's nodes on the target.
        target: the same target, for its single operators.
        skeleton: of the model.
        limit: bytes of tensors that one observed run may send.
    """

    arms: Arms
    nodes: TargetNodes
    target: Target
    skeleton: Skeleton
    limit: int = OBSERVED_BYTES

    @cached_property
    def alike(self) -> Arm:
        """The noise arm with the implementations that the target runs, so that operators go together."""
        return Arm(self.skeleton, self.arms.noise.dtype, self.target.spec.options, alike=True)


@dataclass
class Way:
    """How the search went, clause by clause."""

    clauses: list[str] = field(default_factory=list)

    def say(self, clause: str) -> None:
        """Adds one."""
        self.clauses.append(clause)

    def __str__(self) -> str:
        return "; ".join(self.clauses)


def guilty_operator(child: Child, searched: Searched, way: Way) -> Suspect | None:
    """The operator that makes a module wrong; None where none can be named.

    Args:
        child: the module, in the moment in which it is wrong.
        searched: arms and target.
        way: told how it went.
    """
    if not searched.arms.noise.plain:
        way.say("its operators are not judged: of this precision only whole products are modelled")
        return None
    if child.part.stack is not None:
        return _among_experts(child, searched, way)
    noise = _trace(child, searched, way)
    if noise is None:
        return None
    offered = searched.target.describe().capabilities
    found = _observed(child, noise, searched, way) if "observe" in offered else None
    if found is None:
        found = _singly(noise, searched, way)
    return _guilty(found, child, noise, searched.arms, way) if found else None


def _among_experts(child: Child, searched: Searched, way: Way) -> Suspect | None:
    """Experts that are too large to be loaded together: their operators one by one, on the worst tokens."""
    part = child.part
    if part.home is None:
        way.say("its operators cannot be seen: its experts are too large to be loaded together")
        return None
    try:
        given = _worst_tokens(given_to_experts(child.moment.call.lowered), child)
        noise = trace_experts(part, given, searched.alike)
    except ArmError as error:
        way.say(f"its operators cannot be noted: {error.message}")
        return None
    way.say(f"operators of its experts on the {len(given.hidden)} worst tokens")
    found = _singly(noise, searched, way)
    return found[0] if found else None


def _worst_tokens(given: Paused, child: Child) -> Paused:
    """The tokens that are furthest off, as many as meet few experts; at least one."""
    order = torch.arange(len(given.hidden))
    if child.local is not None:
        got, due = (joined([call], [None])[0].double() for call in (child.local, child.reference))
        order = ((got - due).norm(dim=-1) / due.norm(dim=-1)).nan_to_num(0.0).argsort(descending=True)
    met: set[int] = set()
    rows: list[int] = []
    for row in order.tolist():
        more = met | set(given.ids[row].tolist())
        if rows and len(more) > CHUNK:
            continue
        met = more
        rows.append(row)
    chosen = torch.tensor(sorted(rows))
    return Paused("", given.hidden[chosen], given.ids[chosen], given.weights[chosen])


def _trace(child: Child, searched: Searched, way: Way) -> Trace | None:
    try:
        return trace(child.part, child.moment, searched.alike)
    except ArmError:  # the CPU may lack what the target runs
        pass
    try:
        return trace(child.part, child.moment, searched.arms.noise)
    except ArmError as error:
        way.say(f"its operators cannot be noted: {error.message}")
        return None


def _singly(noise: Trace, searched: Searched, way: Way) -> list[Suspect]:
    found, untried = singly(noise, searched.target)
    if untried:
        way.say(untried)
    elif not found:
        way.say(
            "each of its operators alone is right on the target: the fault is in how they are put together"
        )
    return found


def _observed(child: Child, noise: Trace, searched: Searched, way: Way) -> list[Suspect] | None:
    part, moment = child.part, child.moment
    nodes = searched.nodes
    try:
        for given in moment.earlier:
            nodes.run(part.node, part.expressions, given.lowered, mode=given.mode, state=moment.state)
        seen = nodes.observe(
            part.node,
            part.expressions,
            moment.call.lowered,
            mode=moment.call.mode,
            state=moment.state,
            limit=searched.limit,
        )
    except (WorkerError, UnsupportedError) as error:
        way.say(f"the target cannot be observed there: {detail_of(error)}")
        return None
    finally:
        if moment.state is not None:
            nodes.forget(moment.state)
    if not seen.operators:
        way.say("the target runs it without modules of torch, so its operators cannot be seen")
        return None
    if seen.left_out:
        way.say(f"{seen.left_out} tensors were left out as too large")
    if seen.error:
        last = seen.operators[-1]
        if last.outputs is None:
            return [Suspect(with_attributes(last.call), f"it raises {seen.error}", own=False)]
        return _raising(seen, noise, way)
    if child.local is not None and seen.outputs is not None:
        arms = searched.arms
        if _wrong(child.local, child, noise, arms) and not _wrong(seen.outputs, child, noise, arms):
            way.say("while its operators are watched it is right")
    found, ended = suspects(seen.operators, seen.outputs, noise)
    if ended:
        way.say(ended)
    if not found:
        way.say("observed, none of its operators is beyond rounding noise")
    return found


def _raising(seen: Observation, noise: Trace, way: Way) -> list[Suspect]:
    """What the reference calls after the last operator that the target finished."""
    last = len(seen.operators) - 1
    place = next(
        (step.noise for step in aligned(seen.operators, noise.operators) if step.target == last), None
    )
    if place is None or place + 1 >= len(noise.operators):
        way.say(f"after {seen.operators[last].call.op} it raises {seen.error}")
        return []
    call = with_attributes(noise.operators[place + 1].call)
    return [Suspect(call, f"where the reference calls it the target raises {seen.error}", own=False)]


def _guilty(found: Sequence[Suspect], child: Child, noise: Trace, arms: Arms, way: Way) -> Suspect:
    """The first whose error alone makes the module wrong; the first of all where none does."""
    if len(found) == 1:
        return found[0]
    for place, suspect in enumerate(found):
        changed = with_changes(noise, suspect.changes) if suspect.changes else None
        if changed is None or _wrong(_as_call(changed), child, noise, arms):
            if place:
                names = ", ".join(dict.fromkeys(one.call.op for one in found[:place]))
                way.say(f"{names} before it beyond noise, too little to matter")
            return suspect
    way.say(f"{len(found)} operators are beyond noise, none of which explains it alone")
    return found[0]


def _wrong(output: Call, child: Child, noise: Trace, arms: Arms) -> bool:
    plain = with_changes(noise, ())
    return plain is None or bool(judged(child, output, _as_call(plain), arms).fault)


def _as_call(tensors: Sequence[Tensor]) -> Call:
    names = [f"t{place}" for place in range(len(tensors))]
    return Call([{"$tensor": name} for name in names], dict(zip(names, tensors, strict=True)))
