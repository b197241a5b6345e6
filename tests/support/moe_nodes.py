"""A layer with routed experts of a tiny model: its weights in both parts, and its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Call
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights
from day0.tasks.reference_arm import Arm, read_weights
from day0_worker import trees
from day0_worker.dtypes import torch_dtype
from support.tiny_releases import TinyRelease

MOE = ("qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "qwen3_next", "glm4_moe")
"""Tiny models with stacked experts: softmax and sigmoid routers, groups, shared experts, biases."""
TOKENS = [[3, 14, 15, 9, 26, 5, 35, 8, 9, 7]]
STATE = "s"


@dataclass(frozen=True)
class Stack:
    """As `ExpertStack`."""

    exact: Mapping[str, torch.Tensor]
    lowered: Mapping[str, torch.Tensor]
    sent: Mapping[str, Any]


@dataclass(frozen=True)
class MoeNode:
    """The last such layer of a model, called on ten tokens and then on one with their cache.

    Attributes:
        skeleton: of the model.
        node: with `experts`.
        weights: all of them, as stored.
        calls: phase -> arguments in the dtype asked for.
        asked: experts that `stack` was asked for, in order.
    """

    skeleton: Skeleton
    node: Node
    dtype: str
    weights: Mapping[str, torch.Tensor]
    calls: Mapping[str, Call]
    asked: list[tuple[int, ...]] = field(default_factory=list)

    @cached_property
    def rest(self) -> dict[str, torch.Tensor]:
        """Without the experts'."""
        return {name: value for name, value in self.weights.items() if not self._of_experts(name)}

    @property
    def experts(self) -> dict[str, torch.Tensor]:
        """Of the experts alone, by their own names."""
        return {
            name[len(self.node.experts) + 1 :]: value
            for name, value in self.weights.items()
            if self._of_experts(name)
        }

    @property
    def sent(self) -> dict[str, Any]:
        """All weights as expressions."""
        return {name: {"value": value} for name, value in self.weights.items()}

    def stack(self, ids: Sequence[int]) -> Stack:
        """The weights of these experts."""
        self.asked.append(tuple(ids))
        some = {name: value[list(ids)] for name, value in self.experts.items()}
        lowered = {name: value.to(torch_dtype(self.dtype)) for name, value in some.items()}
        return Stack(some, lowered, {name: {"value": value} for name, value in some.items()})

    def _of_experts(self, name: str) -> bool:
        return name.startswith(f"{self.node.experts}.")


def moe_node(tiny: TinyRelease, dtype: str = "fp32") -> MoeNode:
    """The last layer with stacked experts."""
    arm = Arm(tiny.skeleton, dtype, {})
    glue = Glue(tiny.skeleton, dtype, arm.options)
    last: list[Node] = []
    calls: dict[str, Call] = {}
    for phase in ("prefill", "decode"):
        tokens = TOKENS if phase == "prefill" else [[21]]
        cache = arm.cache(STATE) if phase == "decode" else None
        with Walk(tiny.skeleton, tokens, dtype, glue=glue, cache=cache) as walk:
            for call in walk:
                node = tiny.skeleton.node(call.node)
                weights = read_weights(node, resolve_weights(node, tiny.release.checkpoint))
                path = experts_path(weights)
                if path:
                    last[:] = [node.model_copy(update={"experts": path})]
                    calls[f"{node.name} {phase}"] = call.call
                call.reply(arm.run(node, weights, call.call, state=STATE))
    node = last[0]
    weights = read_weights(node, resolve_weights(node, tiny.release.checkpoint))
    own = {phase: calls[f"{node.name} {phase}"] for phase in ("prefill", "decode")}
    return MoeNode(tiny.skeleton, node, dtype, weights, own)


def experts_path(weights: Mapping[str, torch.Tensor]) -> str:
    """Module path of stacked experts among a node's weights."""
    found = {name.rpartition(".")[0] for name, value in weights.items() if value.dim() == 3}
    return next((path for path in sorted(found) if path.endswith("experts")), "")


def states(call: Call) -> torch.Tensor:
    """The hidden states of a layer's output."""
    value = trees.decode(call.tree, call.tensors)
    tensor: torch.Tensor = value[0] if isinstance(value, tuple) else value
    return tensor
