"""The implementation whose numbers count: transformers, eager, on the CPU, one node's weights at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from day0_worker.modules import NodeModules
from day0_worker.stack import StackError
from day0_worker.trees import decode_arguments, encode
from day0_worker.weights import evaluate

from ..base.checkpoint import Checkpoint
from ..base.errors import CheckpointError
from ..base.skeleton import Node, Skeleton
from ..base.target import Call
from .casting import cast_like
from .walk import Glue, NodeCall, Walk
from .weights import resolve_weights

Tokens = Sequence[Sequence[int]]
Known = Callable[[str, int], "Call | None"]


@dataclass(frozen=True)
class NodeState:
    """What the reference says of one node call.

    Attributes:
        node: its name.
        index: number of the call within the forward.
        inputs: the reference's arguments.
        outputs: what it gives for them.
        noise: what the same code gives for the same arguments in the target's dtype; None: no such arm.
        noise_inputs: the arguments as that arm took them: its own dtypes, its own masks.
        reused: whether `outputs` were known before and nothing was computed.
    """

    node: str
    index: int
    inputs: Call
    outputs: Call
    noise: Call | None = None
    noise_inputs: Call | None = None
    reused: bool = False


class Reference(Protocol):
    """Whatever yields node states: streaming transformers, a recorded bundle, another target.

    Attributes:
        name: for the record, e.g. `transformers 5.24.0 eager cpu fp32`.
    """

    name: str

    def states(self, tokens: Tokens, wanted: Sequence[str] | None = None) -> Iterator[NodeState]:
        """States of the wanted nodes (None: all) in the order of one prefill over the tokens."""
        ...


class StreamingReference:
    """Transformers on top of a walk: at any time only one node's weights are in memory.

    Bound: weights of the largest node in each precision, the hidden states, and the caches of the sequence;
    with `keep_bytes` at least the size of all weights as loaded, they stay between forwards.

    Args:
        skeleton: which model.
        checkpoint: its weights.
        dtype: short name of the reference's precision.
        noise: short name of the precision of a second arm on the same inputs; None: no such arm.
        options: `attn` and `experts`; None: as transformers chooses, experts one by one in fp64, for which
            grouped products have no kernel.
        keep_bytes: see above.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        checkpoint: Checkpoint,
        *,
        dtype: str = "fp32",
        noise: str | None = None,
        options: Mapping[str, str] | None = None,
        keep_bytes: int = 0,
    ) -> None:
        from importlib.metadata import version

        self.name = f"transformers {version('transformers')} eager cpu {dtype}"
        self.bytes_read = 0
        self.logits: torch.Tensor | None = None
        self._skeleton = skeleton
        self._checkpoint = checkpoint
        self._arms = [_Arm(skeleton, dtype, options)]
        if noise is not None:
            self._arms.append(_Arm(skeleton, noise, options))
        self._keep = _weight_bytes(skeleton) * len(self._arms) * 2 <= keep_bytes
        self._loaded: set[str] = set()
        loose = {
            f"{node.name}.{name}": value
            for node in skeleton.nodes
            if not node.called and _is_container(node, skeleton)
            for name, value in self._weights(node).items()
        }
        for arm in self._arms:
            arm.glue = Glue(skeleton, arm.dtype, arm.options, loose)

    def states(
        self,
        tokens: Tokens,
        wanted: Sequence[str] | None = None,
        *,
        continues: bool = False,
        known: Known | None = None,
    ) -> Iterator[NodeState]:
        """States of the wanted nodes in the order of one forward; `logits` are those of the tokens after it.

        Args:
            tokens: token ids, sequences of equal length.
            wanted: node names; None: all. The others run too.
            continues: whether the tokens follow those of the last call, whose caches are then used.
            known: outputs of a call that were computed before, by node and index: it is not run again. Its
                cache stays empty, so nothing can continue from there.

        Raises:
            CheckpointError: E331, a node's weights are not all there.
            SkeletonError: E410, the forward between nodes failed.
        """
        walks = [arm.walk(tokens, self._skeleton, continues) for arm in self._arms]
        try:
            for calls in zip(*walks, strict=True):
                first = calls[0]
                outputs = known(first.node, first.index) if known is not None else None
                reused = outputs is not None
                state = self._reused(calls, outputs) if outputs is not None else self._run(calls)
                _reply(calls, state)
                if wanted is None or first.node in wanted:
                    yield NodeState(**{**vars(state), "reused": reused})
            self.logits = getattr(walks[0].output, "logits", None)
        finally:
            for walk in walks:
                walk.close()

    def forward(self, tokens: Tokens, *, continues: bool = False) -> torch.Tensor:
        """Logits [batch, length, vocabulary] of the tokens.

        Raises:
            CheckpointError: E331, a node's weights are not all there, or the model has no head.
        """
        for _ in self.states(tokens, (), continues=continues):
            pass
        if self.logits is None:
            raise CheckpointError(f"{self._skeleton.architecture} gives no logits", code="E331")
        return self.logits

    def generate(self, tokens: Sequence[int], new_tokens: int) -> list[int]:
        """Greedy continuation of one sequence."""
        found: list[int] = []
        step: list[int] = list(tokens)
        while len(found) < new_tokens:
            logits = self.forward([step], continues=bool(found))
            step = [int(logits[0, -1].argmax())]
            found += step
        return found

    def _run(self, calls: Sequence[NodeCall]) -> NodeState:
        node = self._skeleton.node(calls[0].node)
        weights = None if node.name in self._loaded else self._weights(node)
        inputs = [calls[0].call, *[cast_like(calls[0].call, call.call) for call in calls[1:]]]
        outputs = [
            arm.run(node, weights, call, self._keep) for arm, call in zip(self._arms, inputs, strict=True)
        ]
        if self._keep:
            self._loaded.add(node.name)
        arm = (outputs[1], inputs[1]) if len(outputs) > 1 else (None, None)
        return NodeState(node.name, calls[0].index, inputs[0], outputs[0], *arm)

    def _reused(self, calls: Sequence[NodeCall], outputs: Call) -> NodeState:
        return NodeState(calls[0].node, calls[0].index, calls[0].call, outputs)

    def _weights(self, node: Node) -> dict[str, torch.Tensor]:
        if node.missing:
            raise CheckpointError(
                f"{node.name} cannot run: the checkpoint lacks {', '.join(node.missing[:5])}",
                code="E331",
                remedy="Look for the findings about missing or unreadable weights.",
            )
        self.bytes_read += sum(
            self._checkpoint.tensors[name].bytes
            for recipe in node.weights.values()
            for name in recipe.tensors
        )
        expressions = resolve_weights(node, self._checkpoint)
        try:
            return {name: evaluate(expression, {}) for name, expression in expressions.items()}
        except (StackError, OSError) as error:
            raise CheckpointError(f"weights of {node.name} cannot be read: {error}", code="E331") from error


class _Arm:
    """One precision of the reference: glue, modules and the caches of the sequence."""

    def __init__(self, skeleton: Skeleton, dtype: str, options: Mapping[str, str] | None) -> None:
        default = {"experts": "eager"} if dtype == "fp64" and _has_experts(skeleton) else {}
        self.dtype = dtype
        self.options = dict(default if options is None else options)
        self.glue: Glue | None = None
        self._modules = NodeModules(skeleton.config, skeleton.architecture, dtype, self.options)
        self._state = "sequence"

    def walk(self, tokens: Tokens, skeleton: Skeleton, continues: bool) -> Walk:
        if not continues:
            self._modules.forget(self._state)
        # The glue reads lengths from the cache before the first node changes it.
        cache = copy.deepcopy(self._modules.cache(self._state)) if continues else None
        return Walk(skeleton, tokens, self.dtype, glue=self.glue, cache=cache)

    def run(self, node: Node, weights: Mapping[str, torch.Tensor] | None, call: Call, keep: bool) -> Call:
        args, kwargs = decode_arguments(call.tree, call.tensors)
        try:
            output = self._modules.run(node.name, weights, args, kwargs, state=self._state, keep=keep)
        except StackError as error:
            raise CheckpointError(f"{node.name} cannot run: {error}", code="E331") from error
        return Call(*encode(output))


def _reply(calls: Sequence[NodeCall], state: NodeState) -> None:
    """Each arm's glue goes on with its own arm's outputs, so that its dtypes stay natural."""
    calls[0].reply(state.outputs)
    for call in calls[1:]:
        call.reply(state.outputs if state.noise is None else state.noise)


def _is_container(node: Node, skeleton: Skeleton) -> bool:
    return any(other.called and other.name.startswith(f"{node.name}.") for other in skeleton.nodes)


def _has_experts(skeleton: Skeleton) -> bool:
    return any(node.feed_forward == "moe" for node in skeleton.nodes)


def _weight_bytes(skeleton: Skeleton) -> int:
    """Bytes of all parameters in fp32, tied ones counted once."""
    total = 0
    for node in skeleton.nodes:
        for name, recipe in node.weights.items():
            elements = 0 if name in node.tied else 1
            for dim in recipe.shape:
                elements *= dim
            total += 4 * elements
    return total
