"""Forwards of the whole model with some roles in a lower precision, node by node, each weight read once.

The oracle's forward goes along where nodes are compared; a forward whose inputs and weights at a node are the
oracle's takes its output. Bound: that of `day0.tasks.numerics.precision.lowered_node`, and the hidden states
of all forwards; of their logits one at a time beside the oracle's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.skeleton import Node
from day0.adapters.models.node_weights import WeightReader
from day0.adapters.models.walk import Glue, Walk
from day0_worker.dtypes import torch_dtype

from ...reference_arm import Arm, loose_weights
from ..walk.case import Case
from ..walk.memory import chunk_of, prefetch_bytes
from .lowered_node import Choice, Job, LoweredNode, Parts
from .lowered_stream import Cost, Stream, information
from .lowerings import Lowering
from .precision_step import BASE, ORACLE, Local, SweepStep, Swept, stream_name
from .roles import Roles, roles_of, roles_of_vectors, roles_present


class PrecisionWalks:
    """Walks over one case's model; use it as a context manager.

    Args:
        case: its main pass is what runs.

    Attributes:
        roles: that the model has.
    """

    def __init__(self, case: Case) -> None:
        self._case, skeleton, self._dtype = case, case.skeleton, torch_dtype(case.dtype)
        self._oracle = Arm(skeleton, case.reference_dtype, case.options)
        self._base = Arm(skeleton, case.dtype, case.options)
        self._roles: Roles = roles_of(skeleton)
        self._vectors = roles_of_vectors(skeleton, self._roles)
        self._axes: dict[str, dict[str, int]] = {}
        self._reader = WeightReader(case.checkpoint, budget=prefetch_bytes(case.memory))
        self._ids = case.passes[0].ids if case.passes else (case.tokens.ids,)
        loose = loose_weights(skeleton, case.checkpoint)
        self._glues = {
            dtype: Glue(skeleton, dtype, self._oracle.options, loose)
            for dtype in sorted({case.reference_dtype, case.dtype})
        }
        self._called = [node for node in skeleton.nodes if node.called]
        self.roles = roles_present(self._roles)

    def __enter__(self) -> PrecisionWalks:
        return self

    def __exit__(self, *exception: object) -> None:
        self._reader.close()

    def sweep(self, lowerings: Sequence[Lowering], *, propagate: bool) -> Swept:
        """Each role in each precision, the rest as the oracle has it.

        Args:
            lowerings: the precisions.
            propagate: whether each has a forward of its own; else it only runs on the oracle's inputs.

        Raises:
            ArmError: the reference failed.
            CheckpointError: a node's weights are not there.
            SkeletonError: the forward failed between nodes.
        """
        singles = [(role, lowering.dtype) for role in self.roles for lowering in lowerings]
        swept = Swept({single: Local() for single in singles})
        with ExitStack() as stack:
            streams = {ORACLE: self._stream(stack), BASE: self._stream(stack, base=True)}
            streams |= {stream_name(single): self._stream(stack) for single in singles if propagate}
            oracle, seen = streams[ORACLE], set[str]()
            while oracle.call is not None:
                node = self._case.skeleton.node(oracle.call.node)
                with self._opened(node) as lowered:
                    SweepStep(node, self._roles_of(node), streams, swept, self._dtype).run(lowered)
                if node.name not in seen:
                    self._count_bytes(node, lowerings, swept)
                    seen.add(node.name)
                self._told(len(seen), node.name)
            swept.logits = oracle.logits
            if oracle.logits is not None:
                swept.information = information(oracle.logits)
            swept.base = streams[BASE].cost
            swept.costs = {
                single: cost
                for single in singles
                if propagate and (cost := streams[stream_name(single)].cost) is not None
            }
        return swept

    def cost(self, choice: Choice, logits: Tensor) -> Cost:
        """What a whole choice of precisions loses at the output.

        Args:
            choice: role -> precision.
            logits: of the oracle.

        Raises:
            Day0Error: see `sweep`.
        """
        with ExitStack() as stack:
            stream = self._stream(stack)
            stream.against = logits
            done = 0
            while stream.call is not None:
                call = stream.call
                node = self._case.skeleton.node(call.node)
                with self._opened(node) as lowered:
                    lowered.run([Job(_of_roles(choice, self._roles_of(node)), call.call, stream.reply)])
                done += 1
                self._told(done, node.name)
        return stream.cost or Cost(math.nan, math.nan)

    @contextmanager
    def _opened(self, node: Node) -> Iterator[LoweredNode]:
        """A node with its weights, while those of the next come."""
        if node.missing:
            lacking = ", ".join(node.missing[:5])
            raise CheckpointError(f"{node.name} cannot run: the checkpoint lacks {lacking}", code="E461")
        experts = bool(node.experts)
        weights = self._reader.open(node, self._base.dtypes(node), without_experts=experts)
        try:
            place = next(index for index, one in enumerate(self._called) if one.name == node.name)
            for following in self._called[place + 1 : place + 2]:
                self._reader.prefetch(following)
            chunk = chunk_of(self._case.memory, weights.expert_bytes) if experts else 0
            yield LoweredNode(node, weights, self._oracle, self._base, self._parts(node), chunk)
        finally:
            weights.close()

    def _roles_of(self, node: Node) -> frozenset[str]:
        return frozenset(self._roles.get(node.name, {}).values())

    def _parts(self, node: Node) -> Parts:
        axes = self._axes.setdefault(node.kind, {})
        return Parts(self._roles.get(node.name, {}), self._vectors, axes)

    def _stream(self, stack: ExitStack, *, base: bool = False) -> Stream:
        dtype = self._base.dtype if base else self._oracle.dtype
        stream = Stream(Walk(self._case.skeleton, self._ids, dtype, glue=self._glues[dtype]))
        stack.callback(stream.end)
        return stream

    def _count_bytes(self, node: Node, lowerings: Sequence[Lowering], swept: Swept) -> None:
        parts = self._parts(node)
        for name, role in parts.roles.items():
            for lowering in lowerings:
                local = swept.local.get((role, lowering.dtype))
                if local is not None:
                    shape, alone = node.weights[name].shape, role in self._vectors
                    axis = parts.axes.get(name)
                    local.bytes += lowering.bytes_of(shape, axis, self._case.dtype, alone=alone)

    def _told(self, done: int, node: str) -> None:
        total = len(self._called)
        self._case.progress(f"{self._case.step} precision", min(done, total), total, node)


def _of_roles(choice: Choice, roles: frozenset[str]) -> Choice:
    return {role: dtype for role, dtype in choice.items() if role in roles}
