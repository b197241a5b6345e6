"""Modules inside a node as nodes of their own: what they are given, and which of them is wrong by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0.adapters.models.casting import cast_like
from day0_worker.trees import has_state

from ...outcomes import detail_of, outcome_of
from ...reference_arm import Arm, ArmError
from ...target_nodes import TargetNodes
from ..measures.judge import Judgement, judge_all
from ..measures.values import WrongOutput, distances, joined
from ..walk.expert_runs import Which
from ..walk.visit import Visit
from .heard import Heard, full_path, hear
from .part_runs import Part, on_arm, on_target

STATE = "descent"
"""Name of the sequence whose cache fragments use; it is forgotten after each of them."""
MOST_CALLS = 400
"""Calls of children that are compared at one level. A layer of experts as single modules has three for each
expert that is met; where there are more, those beyond are said to be untried."""


@dataclass(frozen=True)
class Arms:
    """Who says what is right.

    Attributes:
        reference: in the reference's precision.
        noise: in the target's.
        dtype: of the target.
    """

    reference: Arm
    noise: Arm
    dtype: torch.dtype

    @property
    def eps(self) -> float:
        """Machine epsilon of the target's precision."""
        return torch.finfo(self.dtype).eps


@dataclass(frozen=True)
class Given:
    """One call: what the reference gets and what noise arm and target get for it."""

    mode: str
    exact: Call
    lowered: Call


@dataclass(frozen=True)
class Moment:
    """The call in which a module is looked at.

    Attributes:
        call: its arguments.
        earlier: the calls that filled the cache which it reads, in order; empty where it reads none.
        rows: [tokens] bool, which are no padding; None: all.
    """

    call: Given
    earlier: Sequence[Given] = ()
    rows: Tensor | None = None

    @property
    def state(self) -> str | None:
        """Name of the sequence whose cache is used; None: no cache."""
        return STATE if self.earlier else None


@dataclass(frozen=True)
class Child:
    """One call of a module that another one made.

    Attributes:
        part: the called module.
        moment: what it was given.
        reference: what the reference made of it.
        local: what the target made of it; None where it was not asked, or gave nothing.
    """

    part: Part
    moment: Moment
    reference: Call
    local: Call | None = None


@dataclass(frozen=True)
class Trial:
    """What the target made of one module by itself.

    Attributes:
        fault: which measure is beyond which tolerance, or how it failed; empty where it is right.
        judgement: None where nothing could be compared.
        local: the target's output; None where it gave none.
        noise: the noise arm's; None where it gave none.
        skipped: why nothing can be said; else empty.
    """

    fault: str = ""
    judgement: Judgement | None = None
    local: Call | None = None
    noise: Call | None = None
    skipped: str = ""


def moments(visit: Visit) -> list[Moment]:
    """Each pass of a visit with those before it that filled its cache."""
    found: list[Moment] = []
    cached: list[Given] = []
    for step in visit.passes:
        given = Given(step.mode, step.exact, step.lowered)
        if not found:
            cached.append(given)
        found.append(Moment(given, tuple(cached) if step.cached else (), step.rows))
        if step.cached:
            cached.append(given)
    return found


def run_arm(arm: Arm, part: Part, moment: Moment, *, exact: bool) -> Call:
    """What an arm makes of a part in a moment.

    Raises:
        ArmError: its module raised.
    """
    try:
        for given in (*moment.earlier, moment.call):
            call, which = _of(given, exact)
            output = on_arm(arm, part, call, which=which, state=moment.state)
        return output
    finally:
        arm.modules.forget(STATE)


def try_part(child: Child, arms: Arms, nodes: TargetNodes) -> Trial:
    """Runs one module by itself on noise arm and target, on the reference's input, and judges it."""
    part, moment = child.part, child.moment
    try:
        noise = run_arm(arms.noise, part, moment, exact=False)
    except ArmError as error:
        return Trial(skipped=error.message)
    try:
        for given in (*moment.earlier, moment.call):
            local = on_target(nodes, part, given.lowered, mode=given.mode, state=moment.state)
    except WorkerError as error:
        return Trial(f"{outcome_of(error)}: {detail_of(error)}", noise=noise)
    except (UnsupportedError, ArmError) as error:
        return Trial(skipped=error.message, noise=noise)
    finally:
        if moment.state is not None:
            nodes.forget(STATE)
    return judged(child, local, noise, arms)


def judged(child: Child, local: Call, noise: Call, arms: Arms) -> Trial:
    """Holds what the target gave against the noise arm's, as whole nodes are."""
    rows = [child.moment.rows]
    try:
        target, lowered, due = (joined([call], rows) for call in (local, noise, child.reference))
        judgement = judge_all(
            distances(target, due, arms.dtype),
            distances(lowered, due, arms.dtype),
            eps=arms.eps,
            routed=child.part.routed,
        )
    except WrongOutput as wrong:
        return Trial(f"shape: the target {wrong}", local=local, noise=noise)
    if judgement is None:
        return Trial(skipped="it gives no floating tensor", local=local, noise=noise)
    fault = str(judgement.excess) if judgement.excess is not None else ""
    return Trial(fault, judgement, local, noise)


def children(part: Part, moment: Moment, arms: Arms) -> tuple[list[Child], dict[str, str]]:
    """The calls that a part makes of the modules right below it, in order, as the reference makes them.

    Returns:
        The calls, and path -> why a module cannot be tried by itself.

    Raises:
        ArmError: an arm fails on the part.
    """
    exact = _listened(arms.reference, part, moment, exact=True)
    lowered = _listened(arms.noise, part, moment, exact=False)
    skipped = {**exact.skipped, **lowered.skipped}
    counterparts = {(call.run, call.path, call.index): call for call in lowered.calls}
    last = len(moment.earlier)
    paired: dict[tuple[str, int], dict[int, Given]] = {}
    for call in exact.calls:
        other = counterparts.get((call.run, call.path, call.index))
        if other is None:
            skipped.setdefault(full_path(part.path, call.path), "the noise arm does not call it alike")
            continue
        mode = (*moment.earlier, moment.call)[call.run].mode
        paired.setdefault((call.path, call.index), {})[call.run] = Given(
            mode, call.inputs, cast_like(call.inputs, other.inputs)
        )
    found = []
    for call in exact.calls:
        givens = paired.get((call.path, call.index), {})
        if call.run == last and last in givens:
            earlier = tuple(givens[run] for run in sorted(givens) if run < last)
            uses = has_state(call.inputs.tree)
            own = Moment(givens[last], earlier if uses else (), moment.rows)
            found.append(Child(_below(part, call.path, call.output, arms), own, call.output))
    return found, skipped


def is_leaf(part: Part, arms: Arms) -> bool:
    """Whether nothing below it stands for itself, as in experts whose parameters are stacked."""
    if part.home is not None:
        return True
    module = arms.reference.modules.module(part.node.name)
    return any(parameter.dim() >= 3 for parameter in module._parameters.values() if parameter is not None)


def _listened(arm: Arm, part: Part, moment: Moment, *, exact: bool) -> Heard:
    def run(given: Given) -> Callable[[], Call]:
        call, which = _of(given, exact)
        return lambda: on_arm(arm, part, call, which=which, state=moment.state)

    runs = [run(given) for given in (*moment.earlier, moment.call)]
    try:
        return hear(arm.modules.module(part.node.name), part.path, runs)
    finally:
        arm.modules.forget(STATE)


def _of(given: Given, exact: bool) -> tuple[Call, Which]:
    return (given.exact, "exact") if exact else (given.lowered, "lowered")


def _below(part: Part, path: str, output: Call, arms: Arms) -> Part:
    full = full_path(part.path, path)
    start = f"{path}."
    node, name = part.node, f"{part.node.name}.{path}"
    module = arms.reference.modules.module(name)
    chooses = any(not t.is_floating_point() for t in output.tensors.values())
    holds = any("experts" in inner.split(".") for inner, _ in module.named_modules())
    inside = node.experts.removeprefix(start) if node.experts.startswith(start) else ""
    itself = bool(node.experts) and node.experts == path
    return Part(
        node=Node(
            name=name,
            role="fragment",
            kind=digest({"in": node.kind, "fragment": path})[:16],
            weights={
                key.removeprefix(start): recipe
                for key, recipe in node.weights.items()
                if key.startswith(start)
            },
            experts=inside,
        ),
        path=full,
        weights=Prefixed(part.weights, start),
        expressions=Prefixed(part.expressions, start),
        routed=part.routed and (chooses or holds),
        stack=part.stack if inside or itself else None,
        home=node if itself else None,
        held=part.held,
    )


class Prefixed(Mapping[str, Any]):
    """Those entries of a mapping whose names begin alike, without that beginning; read when asked for.

    Args:
        all_: the whole mapping.
        start: of the names.
    """

    def __init__(self, all_: Mapping[str, Any], start: str) -> None:
        self._all, self._start = all_, start

    def __getitem__(self, name: str) -> Any:
        return self._all[self._start + name]

    def __iter__(self) -> Iterator[str]:
        return (name[len(self._start) :] for name in self._all if name.startswith(self._start))

    def __len__(self) -> int:
        return sum(1 for _ in self)
