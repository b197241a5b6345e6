"""All forwards of one visited node on one side, its experts included, clean or with a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, Paused
from day0_worker.bug_parts import Changes
from day0_worker.bugs import lacking, put

from ...reference_arm import Arm
from ...target_nodes import TargetNodes
from ..measures.values import in_dtype
from ..walk.expert_runs import Side, Stack, Waiting, Which, through_experts
from ..walk.visit import PassVisit, Visit


@dataclass
class Ran:
    """What came of a node's forwards.

    Attributes:
        outputs: pass -> output.
        routed: pass -> what the node gave its experts, where it stood still before them.
    """

    outputs: dict[str, Call] = field(default_factory=dict)
    routed: dict[str, Paused] = field(default_factory=dict)


class BugArm(Arm):
    """The reference in one precision, into one node of which a bug can be put."""

    def lacking(self, node: Node) -> Mapping[str, str]:
        """Bugs that the node cannot have -> why."""
        return lacking(self._modules.model, node.name)

    @contextmanager
    def with_bug(self, bug: str, node: Node) -> Iterator[None]:
        """While it is entered, the node has the bug."""
        changes: Changes = put(self._modules.model, bug, node.name)
        try:
            yield
        finally:
            changes.undo()


def on_arm(
    arm: Arm, visit: Visit, names: Sequence[str], dtype: torch.dtype, *, state: str, chunk: int
) -> Ran:
    """The visited node on an arm that holds its weights, on the reference's inputs in that dtype.

    Args:
        arm: see above.
        visit: of the node.
        names: passes to run, in order; one with a cache needs the main one before it.
        dtype: of the arm.
        state: name for the sequence's cache, not used before.
        chunk: experts that are in memory at a time.

    Raises:
        ArmError: the node's module raised.
    """

    def begin(step: PassVisit, own: str | None) -> Call | Answer | Paused:
        return arm.start(visit.node, in_dtype(step.exact, dtype), state=own)

    return _run(arm, "exact", visit, names, begin, state, chunk)


def on_target(nodes: TargetNodes, visit: Visit, names: Sequence[str], *, state: str, chunk: int) -> Ran:
    """The visited node on a target, on the inputs that the comparison gives it; see `on_arm`.

    Raises:
        WorkerError: the target failed.
        UnsupportedError: it does not run nodes.
    """

    def begin(step: PassVisit, own: str | None) -> Call | Answer | Paused:
        return nodes.start(visit.node, visit.expressions, step.lowered, mode=step.mode, state=own)

    return _run(nodes, "sent", visit, names, begin, state, chunk)


def on_wide_target(
    nodes: TargetNodes, visit: Visit, names: Sequence[str], dtype: torch.dtype, *, state: str, chunk: int
) -> Ran:
    """The visited node on a target in a wider precision, which is sent the weights themselves; see `on_arm`.

    Raises:
        WorkerError: the target failed.
        UnsupportedError: it does not run nodes.
    """
    weights = {name: {"value": tensor} for name, tensor in visit.weights.items()}

    def begin(step: PassVisit, own: str | None) -> Call | Answer | Paused:
        return nodes.start(visit.node, weights, in_dtype(step.exact, dtype), mode=step.mode, state=own)

    return _run(nodes, "exact", visit, names, begin, state, chunk, by_value=True)


class _Runner(Side, Protocol):
    def resume(self, paused: Paused, output: Tensor) -> Call | Answer | Paused: ...


@dataclass(frozen=True)
class _ByValue:
    """A stack whose weights a target is sent themselves."""

    stack: Stack

    @property
    def exact(self) -> Mapping[str, Any]:
        return {name: {"value": tensor} for name, tensor in self.stack.exact.items()}

    @property
    def lowered(self) -> Mapping[str, Tensor]:
        return self.stack.lowered

    @property
    def sent(self) -> Mapping[str, Any]:
        return self.stack.sent


def _run(
    side: _Runner,
    which: Which,
    visit: Visit,
    names: Sequence[str],
    begin: Callable[[PassVisit, str | None], Call | Answer | Paused],
    state: str,
    chunk: int,
    *,
    by_value: bool = False,
) -> Ran:
    ran = Ran()
    steps = [step for step in visit.passes if step.name in names]
    cached = visit.node.state.kind != "none" and any(step.cached for step in steps)
    pending: dict[str, Paused] = {}
    for step in steps:
        own = state if cached and (step.cached or step is visit.passes[0]) else None
        _settle(ran, pending, step.name, begin(step, own))
    while pending:
        # All passes meet each expert together, so that its weights are read once.
        outputs = _experts(side, which, visit, list(pending.values()), chunk, by_value)
        before, pending = pending, {}
        for (name, paused), output in zip(before.items(), outputs, strict=True):
            _settle(ran, pending, name, side.resume(paused, output))
    return ran


def _settle(ran: Ran, pending: dict[str, Paused], name: str, came: Call | Answer | Paused) -> None:
    if isinstance(came, Paused):
        ran.routed.setdefault(name, came)
        pending[name] = came
    else:
        ran.outputs[name] = came.outputs if isinstance(came, Answer) else came


def _experts(
    side: _Runner, which: Which, visit: Visit, pending: Sequence[Paused], chunk: int, by_value: bool
) -> list[Tensor]:
    assert visit.experts is not None, "a node that stands still at its experts has some"
    experts = visit.experts

    def stacks(ids: Sequence[int]) -> Stack:
        stack = experts(ids)
        return _ByValue(stack) if by_value else stack

    waiting = [Waiting(side, paused, which) for paused in pending]
    made: list[Tensor] = []
    for output in through_experts(visit.node, waiting, stacks, chunk=chunk):
        if isinstance(output, Day0Error):
            raise output
        made.append(output)
    return made
