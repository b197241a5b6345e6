"""The reference in one precision, answering single nodes in this process."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.errors import CheckpointError, Day0Error
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Call
from day0.adapters.models.weights import resolve_weights
from day0_worker.modules import NodeModules
from day0_worker.stack import StackError
from day0_worker.trees import decode_arguments, encode
from day0_worker.weights import evaluate

_ATTENTION_HERE = ("eager", "sdpa")
"""What the CPU has; the masks that the model's own forward makes depend on it, so the arms use the
target's."""


class ArmError(Day0Error):
    """The reference itself failed at a node."""

    default_code = "E460"


class Arm:
    """The reference in one precision.

    Holds one node's weights at a time, in that precision.

    Args:
        skeleton: of the model.
        dtype: short name.
        options: of the target, for the masks.

    Attributes:
        dtype: see above.
        options: how the arm's nodes and the glue of its walk are built.
        seconds: spent so far.
    """

    def __init__(self, skeleton: Skeleton, dtype: str, options: Mapping[str, str]) -> None:
        self.dtype, self.seconds = dtype, 0.0
        self.options = reference_options(options)
        self._modules = NodeModules(skeleton.config, skeleton.architecture, dtype, self.options)

    def run(self, node: Node, weights: Mapping[str, Tensor], call: Call, *, state: str | None = None) -> Call:
        """The node's output.

        Args:
            node: of the skeleton.
            weights: its parameters.
            call: its arguments.
            state: name of the sequence whose cache the arm keeps; None: no cache.

        Raises:
            ArmError: the node's module raised.
        """
        began = time.perf_counter()
        try:
            args, kwargs = decode_arguments(call.tree, call.tensors)
            return Call(*encode(self._modules.run(node.name, weights, args, kwargs, state)))
        except (
            Exception
        ) as error:  # third-party model code: whatever it raises becomes a finding at this node
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise ArmError(f"{node.name} fails in {self.dtype} on the CPU: {text}") from error
        finally:
            self.seconds += time.perf_counter() - began

    def cache(self, state: str) -> Any:
        """A copy of the sequence's cache as it stands, for the glue of the next walk to read."""
        return copy.deepcopy(self._modules.cache(state))


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
        if not node.called and any(name.startswith(f"{node.name}.") for name in called)
    ]
    return {
        f"{node.name}.{name}": tensor
        for node in containers
        for name, tensor in read_weights(node, resolve_weights(node, checkpoint)).items()
    }
