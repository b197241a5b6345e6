"""One node of each kind with random weights, and the calls that a forward of the model makes of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0.adapters.models.walk import Glue, Walk
from day0_worker.modules import NodeModules
from day0_worker.trees import decode_arguments, encode

from ..reference_arm import reference_options
from ..thresholds import KIND_BYTES

_SPREAD = 0.02


class TooLarge(Day0Error):
    """One node of each kind takes more memory than this may use."""

    default_code = "E462"


class KindWalk:
    """Forwards of a model of which only the first node of each kind is computed.

    The other nodes of a kind get its first one's output, which has the right shapes: what is asked is whether
    a kind compiles and runs, not what the model says.

    Args:
        skeleton: of the model.
        dtype: short name of weights and activations.
        options: of the target: the masks depend on its attention implementation.

    Attributes:
        firsts: kind -> its first node that a forward calls.
        weights: node name -> parameter -> random tensor, fixed by the node's name.

    Raises:
        TooLarge: E462, the weights of one node of each kind do not fit.
    """

    def __init__(self, skeleton: Skeleton, dtype: str, options: Mapping[str, str]) -> None:
        self.skeleton, self.dtype = skeleton, dtype
        chosen = reference_options(options)
        self._modules = NodeModules(skeleton.config, skeleton.architecture, dtype, chosen)
        self.firsts: dict[str, Node] = {}
        for node in skeleton.nodes:
            if node.called:
                self.firsts.setdefault(node.kind, node)
        places = {node.name: self._modules.parameters(node.name) for node in self.firsts.values()}
        size = sum(
            place.numel() * place.element_size() for each in places.values() for place in each.values()
        )
        if size > KIND_BYTES:
            raise TooLarge(
                f"one node of each kind takes {size / 2**30:.1f} GiB of weights, "
                f"more than {KIND_BYTES / 2**30:.0f} GiB"
            )
        self.weights = {
            name: {key: _random(f"{name}.{key}", place) for key, place in each.items()}
            for name, each in places.items()
        }
        self._glue = Glue(skeleton, dtype, chosen, _loose(skeleton, dtype))

    def calls(
        self,
        tokens: Sequence[Sequence[int]],
        *,
        state: str,
        decode: bool = False,
        mask: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[Node, Call, Call]]:
        """The first call of each kind: node, arguments, and its output here.

        Args:
            tokens: ids, sequences of equal length.
            state: name of the sequence's cache.
            decode: the sequence goes on; else it begins.
            mask: 1 for each token, 0 for padding; None: no padding.

        Raises:
            Day0Error: the model's own code failed on these tokens.
        """
        cache = copy.deepcopy(self._modules.cache(state)) if decode else None
        outputs: dict[str, Call] = {}
        with Walk(self.skeleton, tokens, self.dtype, glue=self._glue, cache=cache, mask=mask) as walk:
            for asked in walk:
                node = self.skeleton.node(asked.node)
                if node.kind not in outputs:
                    outputs[node.kind] = self._run(node, asked.call, state)
                    yield node, asked.call, outputs[node.kind]
                asked.reply(outputs[node.kind])

    def forget(self, state: str) -> None:
        """Drops the sequence's cache."""
        self._modules.forget(state)

    def _run(self, node: Node, call: Call, state: str) -> Call:
        args, kwargs = decode_arguments(call.tree, call.tensors)
        try:
            return Call(*encode(self._modules.run(node.name, self.weights[node.name], args, kwargs, state)))
        except Exception as error:  # third-party model code may raise anything
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise Day0Error(f"{node.name} fails in {self.dtype} on the CPU: {text}", code="E460") from error


def batch(config: Mapping[str, Any], sequences: int, length: int) -> list[list[int]]:
    """Token ids that differ from each other as far as the vocabulary allows."""
    text = config.get("text_config")
    part = {**config, **text} if isinstance(text, Mapping) else config
    vocabulary = max(2, int(part.get("vocab_size") or 2))
    return [[(3 + 7 * row + 5 * place) % vocabulary for place in range(length)] for row in range(sequences)]


def _random(name: str, place: torch.Tensor) -> torch.Tensor:
    """A weight that keeps activations finite: near 1 where it scales single elements, small elsewhere."""
    if not place.dtype.is_floating_point:
        return torch.zeros(place.shape, dtype=place.dtype)
    draw = torch.Generator().manual_seed(int(digest(name)[:8], 16))
    value = torch.randn(place.shape, generator=draw) * _SPREAD
    return (value + 1 if place.dim() == 1 else value).to(place.dtype)


def _loose(skeleton: Skeleton, dtype: str) -> dict[str, torch.Tensor]:
    """Random parameters for those that lie directly in a container of nodes: the glue itself uses them."""
    called = [node.name for node in skeleton.nodes if node.called]
    return {
        f"{node.name}.{name}": torch.randn(tuple(recipe.shape)) * _SPREAD
        for node in skeleton.nodes
        if not node.called and any(name.startswith(f"{node.name}.") for name in called)
        for name, recipe in node.weights.items()
    }
