"""The structure of a model without weights: what every stage reads instead of a module object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .values import Anomaly, Value


class WeightRecipe(Value):
    """How one parameter of a node is made from checkpoint tensors.

    Attributes:
        expression: JSON tree evaluated by `day0_worker.weights`: a leaf `{"tensor": NAME}` or
            `{"stack": [..], "dim": 0}`, `{"cat": [..], "dim": 0}`, `{"chunk": X, "index": 0, "of": 2,
            "dim": 0}`, `{"narrow": X, "dim": 0, "start": 0, "length": 8}`, `{"transpose": X,
            "dims": [0, 1]}`, `{"reshape": X, "shape": [..]}`, `{"dequantize": SCHEME, "weight": X,
            "scale": Y, ..}` (schemes: `day0_worker.dequantise`). The list of a stack or cat may stand as
            `{"each": X, "from": 0, "to": 256}`: X once for each number, with the number in place of `{}` in
            its tensor names; `day0.adapters.models.weights` spells it out for a worker.
        tensors: names of all checkpoint tensors it reads.
        shape: of the parameter.
    """

    expression: Any
    tensors: Sequence[str]
    shape: Sequence[int]


def path_inside(path: str, name: str) -> str:
    """Full name of what is called `name` inside the module at `path`; empty stands for the model itself."""
    return f"{path}.{name}" if path else name


class StateSize(Value):
    """What a node keeps between calls, in elements.

    Attributes:
        kind: `kv`, `latent`, `convolution`, `recurrent` or `none`.
        per_token: elements per token and sequence.
        per_sequence: elements per sequence, whatever its length.
        window: tokens after which `per_token` stops growing; 0: never.
    """

    kind: str = "none"
    per_token: int = 0
    per_sequence: int = 0
    window: int = 0


class Node(Value):
    """One block of the model.

    Attributes:
        name: transformers' module path, e.g. `model.layers.3`; the key that joins everything.
        role: `embedding`, `layer`, `norm`, `head`, `position`, `vision`, `projector` or `unknown`.
        kind: digest of the node's graph with its weights lifted out; equal kinds share one graph.
        layer_kind: attention word of the design's vocabulary (`full`, `sliding`, ...) or empty.
        feed_forward: `dense`, `moe` or empty.
        reads: node names whose outputs it takes; empty for the first.
        weights: parameter name inside the node -> recipe.
        missing: parameters of the node for which the checkpoint has no tensor (tied ones apart).
        tied: parameter name inside the node -> full parameter name it shares its tensor with.
        state: what it keeps between calls.
        called: whether a forward on text calls it; else it is there only to hold parameters (vision towers,
            prediction heads, parameters that lie directly in a container).
        experts: module path inside the node of stacked experts that are called with hidden states [T, H], ids
            [T, k] and weights [T, k], e.g. `mlp.experts`; empty where there are none.
    """

    name: str
    role: str
    kind: str
    layer_kind: str = ""
    feed_forward: str = ""
    reads: Sequence[str] = ()
    weights: Mapping[str, WeightRecipe] = {}
    missing: Sequence[str] = ()
    tied: Mapping[str, str] = {}
    state: StateSize = StateSize()
    called: bool = True
    experts: str = ""


class Skeleton(Value):
    """All nodes in topological order.

    Attributes:
        architecture: transformers class that was built, e.g. `LlamaForCausalLM`.
        model_type: of the config that was built (text part of a composite config).
        config: the config it was built from, as JSON, quantisation taken out.
        nodes: in the order in which a forward calls them.
        unused: checkpoint tensors that no node takes.
        anomalies: what could not be mapped, and why.
        dtype: short name of the dtype that the config declares; bf16 where it declares none.
        builder: versions of what built it (torch, transformers).
        entry: path of the function of the model that calls the nodes, e.g. `model.get_image_features`; empty:
            the forward on tokens.
    """

    architecture: str
    model_type: str
    config: Mapping[str, Any]
    nodes: Sequence[Node]
    unused: Sequence[str] = ()
    anomalies: Sequence[Anomaly] = ()
    dtype: str = "bf16"
    builder: Mapping[str, str] = {}
    entry: str = ""

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises:
            KeyError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def kinds(self) -> Mapping[str, Sequence[str]]:
        """Kind -> names of its nodes, in order."""
        groups: dict[str, list[str]] = {}
        for node in self.nodes:
            groups.setdefault(node.kind, []).append(node.name)
        return groups
