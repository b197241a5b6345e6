"""The walk over all nodes: reference, noise arm and target in lockstep, weights resolved once for all.

Three forwards of the model's own code stop at every node at the same time: the reference's, in fp32 (fp64
where the target computes in fp32); the noise arm's, the reference in the target's precision; and the target's
own. The target is asked twice: on the reference's input (local) and on its own stream (propagated).

Bound: one node's weights in one arm's precision at a time, beside its file pages; the inputs and outputs of
one node on three streams; sums in fp64 over chunks. It does not grow with the number of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from day0.adapters.base.errors import CheckpointError, Day0Error
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0.adapters.models.walk import Glue, NodeCall, Walk
from day0.adapters.models.weights import resolve_weights
from day0_worker.dtypes import torch_dtype

from ..reference_arm import Arm, ArmError, loose_weights, read_weights
from ..target_nodes import TargetNodes
from .case import Case
from .node import Inputs, NodeFacts, compare, not_compared, run_reference, run_target
from .units import Unit, chain, load_unit, node_identity, save_unit

UNIT_VERSION = 1
"""Raised whenever a unit may hold other values or facts for the same inputs."""
REFERENCE_DTYPE = {"fp32": "fp64", "fp64": "fp64", "bf16": "fp32", "fp16": "fp32"}
"""Precision of the target -> of the reference; other precisions cannot be compared yet."""
NO_TEXT = "a prompt of text does not reach it"


@dataclass(frozen=True)
class Comparison:
    """What the walk came to.

    Attributes:
        nodes: each call of a node, in order.
        stopped: why the walk ended before its last node, or None.
        reused: calls whose target answers came from the store.
        reference_seconds: spent in reference and noise arm.
    """

    nodes: Sequence[NodeFacts]
    stopped: Day0Error | None
    reused: int
    reference_seconds: float


def compare_model(case: Case, target: TargetNodes) -> Comparison:
    """Compares every node that a forward calls, in order."""
    run = _Run(case, target)
    found: list[NodeFacts] = []
    stopped: Day0Error | None = None
    total = sum(1 for node in case.skeleton.nodes if node.called)
    try:
        for facts in run.steps():
            found.append(facts)
            case.progress(case.step, min(len(found), total), total, facts.block.name)
    except (CheckpointError, ArmError) as error:
        stopped = error
    return Comparison(
        nodes=[*found, *_not_reached(case, found, stopped)],
        stopped=stopped,
        reused=run.reused,
        reference_seconds=sum(arm.seconds for arm in {id(arm): arm for arm in run.arms}.values()),
    )


class _Run:
    def __init__(self, case: Case, target: TargetNodes) -> None:
        self.case, self.target = case, target
        reference = Arm(case.skeleton, REFERENCE_DTYPE[case.dtype], case.options)
        noise = reference if reference.dtype == case.dtype else Arm(case.skeleton, case.dtype, case.options)
        self.arms = (reference, noise)
        self.reused = 0
        self._eps = torch.finfo(torch_dtype(case.dtype)).eps
        self._last = [node.name for node in case.skeleton.nodes if node.called][-1]
        self._reference_key = self._start()
        self._target_key = chain(self._reference_key, case.target)
        self._own: Walk | None = None

    def steps(self) -> Iterator[NodeFacts]:
        """The nodes in order.

        Raises:
            CheckpointError: a node's weights are not there.
            ArmError: the reference failed.
        """
        loose = loose_weights(self.case.skeleton, self.case.checkpoint)
        glues = {arm.dtype: Glue(self.case.skeleton, arm.dtype, arm.options, loose) for arm in self.arms}
        with ExitStack() as stack:
            reference, noise, own = (
                stack.enter_context(
                    Walk(self.case.skeleton, [self.case.tokens.ids], arm.dtype, glue=glues[arm.dtype])
                )
                for arm in (self.arms[0], self.arms[1], self.arms[1])
            )
            self._own = own
            for first, second in zip(reference, noise, strict=True):
                facts, ended = self._step(first, second)
                yield facts
                if ended:
                    return

    def _start(self) -> str:
        """The key before the first node: what all units depend on."""
        skeleton, tokens = self.case.skeleton, self.case.tokens
        return digest(
            {
                "version": UNIT_VERSION,
                "builder": dict(skeleton.builder),
                "config": digest(dict(skeleton.config)),
                "tokens": [list(tokens.ids), tokens.prompt, tokens.said],
                "arms": [[arm.dtype, arm.options] for arm in self.arms],
            }
        )

    def _step(self, first: NodeCall, second: NodeCall) -> tuple[NodeFacts, bool]:
        """Facts of one call, and whether it was the last and known before, so that nothing is left to do."""
        node = self.case.skeleton.node(first.node)
        own = next(self._own) if self._own is not None else None
        inputs = Inputs(first.call, second.call, own.call if own is not None else None)
        self._reference_key = chain(self._reference_key, node_identity(node, self.case.checkpoint))
        self._target_key = chain(self._target_key, self._reference_key)
        known = load_unit(self.case.store, self._target_key)
        final = node.role == "head" and node.name == self._last
        if known is not None and final:
            self.reused += 1
            return NodeFacts.model_validate(known.facts["node"]), True
        unit = self._reference(node, inputs, keep=not final)
        if known is None:
            known = self._compared(node, unit, inputs, keep=not final)
        else:
            self.reused += 1
        first.reply(unit.values["reference"])
        second.reply(unit.values["noise"])
        self._go_on(own, known.values.get("own"))
        return NodeFacts.model_validate(known.facts["node"]), False

    def _reference(self, node: Node, inputs: Inputs, *, keep: bool) -> Unit:
        unit = load_unit(self.case.store, self._reference_key) if keep else None
        if unit is None:
            weights = read_weights(node, resolve_weights(node, self.case.checkpoint))
            unit = run_reference(node, weights, inputs, *self.arms)
            if keep:
                save_unit(self.case.store, self._reference_key, unit)
        return unit

    def _compared(self, node: Node, unit: Unit, inputs: Inputs, *, keep: bool) -> Unit:
        expressions = resolve_weights(node, self.case.checkpoint)
        answers = run_target(node, expressions, inputs, self.target)
        facts = compare(node, unit, answers, inputs, self.case.tokens, self._eps)
        own = answers.own if facts.outcome == "" else None
        found = Unit({"own": own} if own is not None else {}, {"node": facts.model_dump(mode="json")})
        save_unit(self.case.store, self._target_key, found if keep else Unit({}, found.facts))
        return found

    def _go_on(self, call: NodeCall | None, own: Call | None) -> None:
        """The target's stream goes on with its own output; without one it ends here."""
        if call is not None and own is not None:
            call.reply(own)
        elif self._own is not None:
            self._own.close()
            self._own = None


def _not_reached(case: Case, found: Sequence[NodeFacts], stopped: Day0Error | None) -> list[NodeFacts]:
    """Nodes that the walk did not come to, or that a prompt of text never calls."""
    seen = {facts.block.name for facts in found}
    return [
        not_compared(node, f"not reached: {stopped.message}" if stopped and node.called else NO_TEXT)
        for node in case.skeleton.nodes
        if node.name not in seen and (node.weights or node.called)
    ]
