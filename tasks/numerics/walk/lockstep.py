"""The walk over all nodes: every stream of every pass at one node before any of them goes on.

Three forwards of the model's own code stop at every node at the same time: the reference's, in fp32 (fp64
where the target computes in fp32); the noise arm's, the reference in the target's precision; and the target's
own. The target is asked twice: on the reference's input (local) and on its own stream (propagated). All
prompts and the steps of decoding go together, so that each weight is read once.

Bound: one node's weights in one arm's precision at a time, without experts beyond a chunk of them; the inputs
and outputs of one node; the caches of one node, or of all where they are small. It does not grow with depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.errors import CheckpointError, Day0Error, SkeletonError, SourceError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.models.node_weights import NodeWeights, WeightReader

from ...reference_arm import Arm, ArmError, loose_weights
from ...target_nodes import TargetNodes
from ..measures.signatures import Signature, keep_signature
from ..precision.fake_arm import noise_arm
from .absent import with_files
from .case import Case
from .forwards import NOISE, OWN, REFERENCE, Forwards, Inputs, glues_of
from .memory import chunk_of, prefetch_bytes, small_caches
from .node import NOT_REACHED, NodeFacts, not_compared
from .node_run import NodeRun, Sides
from .node_work import NodeWork, Watch
from .opened import Opened
from .unit_keys import Keys, NodeKeys, start_key
from .units import load_unit

Record = Callable[[Node, NodeWork], None]
NO_TEXT = "a prompt of text does not reach it"


@dataclass(frozen=True)
class Comparison:
    """What the walk came to.

    Attributes:
        nodes: each call of a node, in order.
        stopped: why the walk ended before its last node, or None.
        reused: calls whose target answers came from the store.
        reference_seconds: spent in reference and noise arm.
        dropped: pass -> why it did not go to the end.
        bytes_read: of weights, by this walk.
        signatures: of the target's output on the reference's input at each node.
        outputs: pass -> stream -> what the function returned that `skeleton.entry` names.
    """

    nodes: Sequence[NodeFacts]
    stopped: Day0Error | None
    reused: int
    reference_seconds: float
    dropped: Mapping[str, str]
    bytes_read: int
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def compare_model(
    case: Case, target: TargetNodes | None, watch: Sequence[Watch] = (), record: Record | None = None
) -> Comparison:
    """Compares every node that a forward calls, in order.

    Args:
        case: what is compared.
        target: None where only the reference runs, to be kept in the store.
        watch: told of each node that is compared with everything that was made of it.
        record: told of each node once the reference's outputs are there.
    """
    found: list[NodeFacts] = []
    stopped: Day0Error | None = None
    with Lockstep(case, target, watch, record) as run:
        try:
            found.extend(run.steps())
        except (CheckpointError, SourceError, ArmError, SkeletonError) as error:
            stopped = with_files(error, case.checkpoint)
        return Comparison(
            nodes=[*found, *_not_reached(case, found, stopped)],
            stopped=stopped,
            reused=run.reused,
            reference_seconds=sum(arm.seconds for arm in {id(arm): arm for arm in run.arms}.values()),
            dropped=run.dropped,
            bytes_read=run.reader.bytes_read,
            signatures=run.signatures,
            outputs=run.outputs,
        )


class Lockstep:
    """One walk; use it as a context manager.

    Args:
        case: what is compared.
        target: see `compare_model`.
        watch: see `compare_model`.
        record: see `compare_model`.

    Attributes:
        reused: calls whose target answers came from the store.
        arms: reference and noise arm; the same where their precision is.
        dropped: pass -> why it does not go on.
        reader: of weights.
        signatures: by node; of one that is called again, of its first call.
        outputs: see `Comparison`.
    """

    def __init__(
        self, case: Case, target: TargetNodes | None, watch: Sequence[Watch], record: Record | None
    ) -> None:
        self._case, self._target, self._watch, self._record = case, target, watch, record
        reference = Arm(case.skeleton, case.reference_dtype, case.options)
        noise = reference if reference.dtype == case.dtype else noise_arm(case)
        self.arms = (reference, noise)
        self.reused = 0
        self.dropped: Mapping[str, str] = {}
        self.signatures: dict[str, Signature] = {}
        self.outputs: Mapping[str, Mapping[str, Any]] = {}
        self.reader = WeightReader(case.checkpoint, budget=prefetch_bytes(case.memory))
        self._sides = Sides(reference, noise, target)
        self._called = [node for node in case.skeleton.nodes if node.called]
        self._forget = not small_caches(case)
        self._forwards: Forwards | None = None
        self._keys = Keys(start_key(case, self.arms), case)

    def __enter__(self) -> Lockstep:
        return self

    def __exit__(self, *exception: object) -> None:
        self.reader.close()

    def steps(self) -> Iterator[NodeFacts]:
        """The nodes in order.

        Raises:
            CheckpointError: a node's weights are not there.
            ArmError: the reference failed on the main pass.
            SkeletonError: the main pass failed between nodes.
        """
        total, done = len(self._called), 0
        loose = loose_weights(self._case.skeleton, self._case.checkpoint)
        with ExitStack() as stack:
            glues = glues_of(self._case, self.arms[0].options, loose)
            forwards = Forwards(self._case, glues, stack, own=self._target is not None)
            self._forwards, self.dropped = forwards, forwards.dropped
            while (step := forwards.next()) is not None:
                name, inputs = step
                facts, ended = self._step(self._case.skeleton.node(name), inputs)
                done += 1
                self._case.progress(self._case.step, min(done, total), total, name)
                if facts is not None:
                    yield facts
                if ended:
                    return
            self.outputs = {name: forward.outputs for name, forward in forwards.forwards.items()}

    def _step(self, node: Node, inputs: Mapping[str, Inputs]) -> tuple[NodeFacts | None, bool]:
        """Facts of one call, and whether it was the last and known before, so that nothing is left to do."""
        keys = self._keys.at(node, tuple(inputs))
        final = node.role == "head" and node.name == self._called[-1].name
        known = load_unit(self._case.store, keys.own) if self._target is not None else None
        if known is not None and final:
            self.reused += 1
            keep_signature(self.signatures, node.name, known.values)
            return NodeFacts.model_validate(known.facts["node"]), True
        work = self._work(node, inputs, keys, keep=not final)
        if known is not None:
            self.reused += 1
        if not work.reference_known or (known is None and self._target is not None):
            with self._weights(node) as (weights, whole):
                run = NodeRun(node, self._sides, weights, whole, self._chunk(node, weights))
                facts = work.run(run, weights, self._watch, known=known)
            self._drop_caches()
        else:
            facts = NodeFacts.model_validate(known.facts["node"]) if known is not None else None
        if self._record is not None:
            self._record(node, work)
        own = known.values if known is not None else work.own_outputs
        keep_signature(self.signatures, node.name, own)
        self._reply(work, own)
        return facts, False

    def _work(self, node: Node, inputs: Mapping[str, Inputs], keys: NodeKeys, *, keep: bool) -> NodeWork:
        assert self._forwards is not None, "a step is one of a walk"
        steps = [self._forwards.forwards[name].step for name in inputs]
        unit = load_unit(self._case.store, keys.reference) if keep else None
        local = load_unit(self._case.store, keys.local) if keep and self._target is not None else None
        return NodeWork(self._case, node, inputs, steps, keys, unit, local, keep=keep)

    def _reply(self, work: NodeWork, own: Mapping[str, Call]) -> None:
        """The streams go on; a pass whose reference failed here ends."""
        forwards = self._forwards
        assert forwards is not None, "a step is one of a walk"
        for name, forward in list(forwards.forwards.items()):
            output = work.reference_outputs.get(f"reference/{name}")
            if output is None:
                forwards.drop(name, work.trouble.get(name, "the reference gave no output"))
                continue
            forward.reply(REFERENCE, output)
            forward.reply(NOISE, work.reference_outputs.get(f"noise/{name}"))
            forward.reply(OWN, own.get(f"own/{name}"))

    def _weights(self, node: Node) -> Opened:
        return Opened(self.reader, node, self.arms[1].dtypes(node), self._target, self._next(node))

    def _next(self, node: Node) -> Node | None:
        place = next(index for index, one in enumerate(self._called) if one.name == node.name)
        return self._called[place + 1] if place + 1 < len(self._called) else None

    def _chunk(self, node: Node, weights: NodeWeights) -> int:
        return chunk_of(self._case.memory, weights.expert_bytes) if node.experts else 0

    def _drop_caches(self) -> None:
        if not self._forget:
            return
        for arm in self.arms:
            arm.forget_all()
        if self._target is not None:
            self._target.forget_all()


def _not_reached(case: Case, found: Sequence[NodeFacts], stopped: Day0Error | None) -> list[NodeFacts]:
    """Nodes that the walk did not come to, or that a prompt of text never calls."""
    seen = {facts.block.name for facts in found}
    return [
        not_compared(node, f"{NOT_REACHED}{stopped.message}" if stopped and node.called else NO_TEXT)
        for node in case.skeleton.nodes
        if node.name not in seen and (node.weights or node.called)
    ]
