"""One run of a module inside a node, on an arm or on the target; large experts run a few at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import Day0Error, UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Answer, Call, Paused
from day0.adapters.models.node_weights import ExpertStack
from day0_worker.trees import decode_arguments, encode

from ...reference_arm import Arm, ArmError
from ...target_nodes import TargetNodes
from ..walk.expert_runs import Side, Waiting, Which, experts_of, through_experts
from ..walk.visit import Visit

ASSEMBLED_BYTES = 2**30
"""Bytes of all experts of a node in fp32 up to which they are put together, so that the node is one module
like any other. Beyond, they run a few at a time, and their operators are seen on some tokens only."""
CHUNK = 4
"""Experts in memory at a time: 0.7 GB in fp32 of those of 176 MB that a layer of 7,168 times 2,048 has."""


@dataclass(frozen=True)
class Part:
    """A module of a node, as a node of its own.

    Attributes:
        node: the module: its full path, a kind of its own, its recipes; `experts` where it holds handed-out
            ones.
        path: of the module inside that node; empty for the node itself.
        weights: parameter inside the module -> tensor, without those of experts that are handed out.
        expressions: the same as a target takes them.
        routed: whether rounding alone may send its tokens to other experts.
        stack: gives some experts' weights; None: nothing is handed out.
        home: the whole node where the module is its experts themselves; else None.
        held: what keeps the weights good.
    """

    node: Node
    path: str
    weights: Mapping[str, Tensor]
    expressions: Mapping[str, Any]
    routed: bool
    stack: Callable[[Sequence[int]], ExpertStack] | None = None
    home: Node | None = None
    held: Any = None


def whole(visit: Visit) -> Part:
    """The node itself as a part; experts are put together where they are small."""
    node = visit.node
    routed = node.feed_forward == "moe" or node.layer_kind == "sparse_indexed"
    if visit.experts is None or not node.experts:
        plain = node.model_copy(update={"experts": ""})
        return Part(plain, "", visit.weights, visit.expressions, routed)
    prefix = f"{node.experts}."
    shapes = [recipe.shape for name, recipe in node.weights.items() if name.startswith(prefix)]
    if 4 * sum(math.prod(shape) for shape in shapes) > ASSEMBLED_BYTES:
        return Part(node, "", visit.weights, visit.expressions, routed, visit.experts)
    stack = visit.experts(range(experts_of(node)))
    weights = {prefix + name: stack.exact[name] for name in stack.exact}
    sent = {prefix + name: stack.sent[name] for name in stack.sent}
    return Part(
        node=node.model_copy(update={"experts": "", "kind": f"{node.kind} whole"}),
        path="",
        weights={**{name: visit.weights[name] for name in visit.weights}, **weights},
        expressions={**visit.expressions, **sent},
        routed=routed,
        held=stack,
    )


def on_arm(arm: Arm, part: Part, call: Call, *, which: Which, state: str | None = None) -> Call:
    """What an arm makes of a part.

    Raises:
        ArmError: its module raised, or its experts are called in another way than all others.
    """
    if part.stack is None:
        return arm.run(part.node, part.weights, call, state=state)
    try:
        if part.home is not None:
            return _experts_alone(arm, part, call, which)
        arm.load(part.node, part.weights)
        try:
            came = arm.start(part.node, call, state=state)
            while isinstance(came, Paused):
                came = arm.resume(came, _through(arm, part, part.node, came, which))
            return came
        finally:
            arm.free(part.node)
    except WorkerError as error:  # a choice that no expert answers to
        raise ArmError(error.message) from error


def on_target(nodes: TargetNodes, part: Part, call: Call, *, mode: str, state: str | None = None) -> Call:
    """What the target makes of a part.

    Raises:
        WorkerError: it failed.
        UnsupportedError: it does not run nodes.
        ArmError: its experts are called in another way than all others.
    """
    if part.stack is None:
        return nodes.run(part.node, part.expressions, call, mode=mode, state=state).outputs
    if not nodes.parts:
        raise UnsupportedError("the target does not run its experts by themselves")
    if part.home is not None:
        return _experts_alone(nodes, part, call, "sent")
    came = nodes.start(part.node, part.expressions, call, mode=mode, state=state)
    while isinstance(came, Paused):
        came = nodes.resume(came, _through(nodes, part, part.node, came, "sent"))
    assert isinstance(came, Answer), "a run that stands still no more has ended"
    return came.outputs


def given_to_experts(call: Call) -> Paused:
    """Hidden states, ids and weights of a call of experts.

    Raises:
        ArmError: they are called with something else.
    """
    args, kwargs = decode_arguments(call.tree, call.tensors)
    given = [*args, *kwargs.values()]
    if len(given) != 3 or not all(isinstance(one, Tensor) for one in given):
        raise ArmError("the experts are called with something else than hidden states, ids and weights")
    return Paused("", *given)


def _experts_alone(side: Side, part: Part, call: Call, which: Which) -> Call:
    assert part.home is not None, "asked of experts only"
    return Call(*encode(_through(side, part, part.home, given_to_experts(call), which)))


def _through(side: Side, part: Part, node: Node, paused: Paused, which: Which) -> Tensor:
    assert part.stack is not None, "asked of handed-out experts only"
    output = through_experts(node, [Waiting(side, paused, which)], part.stack, chunk=CHUNK)[0]
    if isinstance(output, Day0Error):
        raise output
    return output
