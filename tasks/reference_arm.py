"""The reference in one precision, answering single nodes in this process."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.errors import CheckpointError, Day0Error
from day0.adapters.base.skeleton import Node, Skeleton, path_inside
from day0.adapters.base.target import Call, Paused
from day0.adapters.models.narrow_weights import large_matrices, restore, widen_as_used
from day0.adapters.models.router_scores import RouterScores
from day0.adapters.models.weights import resolve_weights
from day0_worker import parts
from day0_worker.expert_stack import expert_count
from day0_worker.modules import NodeModules
from day0_worker.stack import StackError
from day0_worker.trees import decode_arguments, encode
from day0_worker.weights import evaluate

Result = TypeVar("Result")
_ATTENTION_HERE = ("eager", "sdpa")
"""What the CPU has; the masks that the model's own forward makes depend on it, so the arms use the
target's."""


class ArmError(Day0Error):
    """The reference itself failed at a node."""

    default_code = "E460"


class Arm:
    """The reference in one precision.

    Holds one node's weights at a time, in that precision. For several runs with one set of weights: `load`,
    `run` or `start` as often as needed, `free`.

    Args:
        skeleton: of the model.
        dtype: short name.
        options: of the target, for the masks.
        alike: whether experts run as the target runs them, where the CPU has that; else one by one.

    Attributes:
        dtype: see above.
        options: how the arm's nodes and the glue of its walk are built.
        seconds: spent so far.
        plain: whether its linear layers are torch's own, so that other kernels of the same roundings may
            stand for them.
    """

    plain = True

    def __init__(
        self, skeleton: Skeleton, dtype: str, options: Mapping[str, str], *, alike: bool = False
    ) -> None:
        self.dtype, self.seconds = dtype, 0.0
        self.options = reference_options(options)
        if alike:
            del self.options["experts"]
            self.options.update({key: options[key] for key in ("experts",) if key in options})
        self._modules = NodeModules(skeleton.config, skeleton.architecture, dtype, self.options)
        self._standing: dict[str, tuple[Node, RouterScores]] = {}

    @property
    def identity(self) -> Sequence[Any]:
        """What its numbers depend on beside the model."""
        return [self.dtype, self.options]

    def dtypes(self, node: Node) -> Mapping[str, torch.dtype]:
        """Parameter of the node -> dtype in which the arm's model holds it."""
        return {name: empty.dtype for name, empty in self._modules.parameters(node.name).items()}

    def load(self, node: Node, weights: Mapping[str, Tensor]) -> None:
        """Puts a node's weights in place until `free`.

        Args:
            node: of the skeleton.
            weights: its parameters; those of its experts may be left out, all of them, where runs are to
                stand still there.

        Raises:
            ArmError: the weights do not fit.
        """
        handed_out = node.experts and not any(name.startswith(f"{node.experts}.") for name in weights)
        without = node.experts if handed_out else ""
        large = large_matrices(self._modules.module(node.name))
        self._guarded(node, lambda: self._modules.load(node.name, weights, without, large))
        for name, part in large.items():
            widen_as_used(part, self.dtypes(node)[name])

    def free(self, node: Node) -> None:
        """Takes a node's weights out again and ends all runs that stand still."""
        self._drop()
        self._modules.free(node.name)
        for part in large_matrices(self._modules.module(node.name)).values():
            restore(part)

    def parameters(self, node: Node) -> Mapping[str, Tensor]:
        """Parameter -> tensor, of those that are loaded."""
        module = self._modules.module(node.name)
        return {name: value for name, value in module.state_dict().items() if not value.is_meta}

    def run(
        self, node: Node, weights: Mapping[str, Tensor] | None, call: Call, *, state: str | None = None
    ) -> Call:
        """The node's output.

        Args:
            node: of the skeleton.
            weights: its parameters, which go again afterwards; None: those that were loaded.
            call: its arguments.
            state: name of the sequence whose cache the arm keeps; None: no cache.

        Raises:
            ArmError: the node's module raised.
        """

        def work() -> Call:
            args, kwargs = decode_arguments(call.tree, call.tensors)
            keep = weights is None
            return Call(*encode(self._modules.run(node.name, weights, args, kwargs, state, keep)))

        return self._guarded(node, work)

    def start(
        self,
        node: Node,
        call: Call,
        *,
        state: str | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Call | Paused:
        """Runs a node whose weights were loaded up to its experts.

        Args:
            node: of the skeleton.
            call: its arguments.
            state: name of the sequence whose cache the arm keeps; None: no cache.
            around: makes a context that the run is in, in the thread in which it works, e.g. a dispatch mode.

        Returns:
            `Paused` with what the router chose from; the node's output where it has no experts to hand out or
            does not call them.

        Raises:
            ArmError: the node's module raised.
        """
        if not node.experts:
            with around():
                return self.run(node, None, call, state=state)

        def work() -> Call | Paused:
            args, kwargs = decode_arguments(call.tree, call.tensors)
            experts = self._modules.module(f"{node.name}.{node.experts}")
            scores = RouterScores(expert_count(experts))
            came = self._modules.start(
                node.name,
                args,
                kwargs,
                pause=node.experts,
                state=state,
                around=lambda: within(scores, around()),
            )
            return self._settled(node, scores, came)

        return self._guarded(node, work)

    def resume(self, paused: Paused, output: Tensor) -> Call | Paused:
        """Goes on with the experts' output [T, H]; each run that stands still can be resumed once.

        Raises:
            ArmError: the node's module raised, or the run was ended.
        """
        if paused.key not in self._standing:
            raise ArmError(f"no run stands still under the key {paused.key!r}")
        node, scores = self._standing.pop(paused.key)
        return self._guarded(
            node, lambda: self._settled(node, scores, self._modules.paused.resume(paused.key, output))
        )

    def run_experts(
        self, node: Node, stack: Mapping[str, Tensor], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """Runs a node's experts alone.

        Args:
            node: of the skeleton.
            stack: parameter of the experts -> its stack [n, ...] of the n experts that are there.
            hidden: [T, H].
            ids: [T, k] out of 0 to n - 1; n stands for none.
            weights: [T, k] of the choices.

        Returns:
            [T, H].

        Raises:
            ArmError: the module raised.
        """

        def work() -> Tensor:
            with self._modules.experts(node.name, node.experts, stack) as run:
                output: Tensor = run(hidden, ids, weights)
                return output

        return self._guarded(node, work)

    def forget_all(self) -> None:
        """Drops all caches and ends all runs that stand still."""
        self._drop()
        self._modules.forget_all()

    def _drop(self) -> None:
        self._standing.clear()
        self._modules.paused.drop()

    def _settled(self, node: Node, scores: RouterScores, came: Any) -> Call | Paused:
        if not isinstance(came, parts.Paused):
            return Call(*encode(came))
        self._standing[came.key] = (node, scores)
        return Paused(came.key, came.hidden, came.ids, came.weights, scores.taken())

    def _guarded(self, node: Node, work: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        try:
            return work()
        except Exception as error:  # third-party model code: whatever it raises is a finding at this node
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise ArmError(f"{node.name} fails in {self.dtype} on the CPU: {text}") from error
        finally:
            self.seconds += time.perf_counter() - began

    @property
    def modules(self) -> NodeModules:
        """The model's modules, for whoever listens to what goes on inside a node."""
        return self._modules

    def cache(self, state: str) -> Any:
        """A copy of the sequence's cache as it stands, for the glue of the next walk to read."""
        return copy.deepcopy(self._modules.cache(state))


@contextmanager
def within(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    """Enters contexts one after the other."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def reference_options(options: Mapping[str, str]) -> dict[str, str]:
    """How the reference is built for a target with these options: its masks, and experts one by one."""
    attention = options.get("attn")
    return {"experts": "eager"} | ({"attn": attention} if attention in _ATTENTION_HERE else {})


def read_weights(node: Node, expressions: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of resolved weights, in the checkpoint's precision; plain ones are views of the files.

    Raises:
        CheckpointError: E461, the node's weights are not all there or cannot be read.
    """
    if node.missing:
        raise CheckpointError(
            f"{node.name} cannot run: the checkpoint lacks {', '.join(node.missing[:5])}", code="E461"
        )
    try:
        return {name: evaluate(expression, {}) for name, expression in expressions.items()}
    except (StackError, OSError) as error:
        raise CheckpointError(f"weights of {node.name} cannot be read: {error}", code="E461") from error


def loose_weights(skeleton: Skeleton, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Parameters that lie directly in a container of nodes, by full name: the glue itself uses them.

    Raises:
        CheckpointError: see `read_weights`.
    """
    called = [node.name for node in skeleton.nodes if node.called]
    containers = [
        node
        for node in skeleton.nodes
        if not node.called and any(name.startswith(path_inside(node.name, "")) for name in called)
    ]
    return {
        path_inside(node.name, name): tensor
        for node in containers
        for name, tensor in read_weights(node, resolve_weights(node, checkpoint)).items()
    }
