"""One node of each kind with random weights, and the calls that a forward of the model makes of it."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0.adapters.models.walk import Glue, Walk
from day0_worker.dtypes import short_dtype
from day0_worker.modules import NodeModules
from day0_worker.trees import decode_arguments, encode
from day0_worker.weights import read_tensor

from ..reference_arm import reference_options
from ..thresholds import KIND_SHARE, KIND_SHARE_MOST
from .kind_reduction import Reduction, Shapes, bytes_of, reduced
from .size_cases import text_part

_SPREAD = 0.02
_BLOCK = 1_048_573
"""Random numbers that are drawn for one parameter; a larger one repeats them: a prime number of them, so that
no two rows are alike."""
_ALIGNED = 64


class TooLarge(Day0Error):
    """One node of each kind takes more memory than this may use."""

    default_code = "E462"


@dataclass
class FirstCall:
    """The first call of a kind.

    Attributes:
        node: that is called.
        call: its arguments.
        compute: gives its output on the CPU.
        output: that the nodes after it are to take; None: the one on the CPU.
    """

    node: Node
    call: Call
    compute: Callable[[], Call]
    output: Call | None = None

    def expected(self) -> Call:
        """The output on the CPU, computed once.

        Raises:
            Day0Error: E460, the model's own code fails there.
        """
        if self.output is None:
            self.output = self.compute()
        return self.output


class KindWalk:
    """Forwards of a model of which only the first node of each kind is computed.

    The other nodes of a kind get its first one's output, which has the right shapes: what is asked is whether
    a kind compiles and runs, not what the model says. Weights lie in files, which the target's worker reads
    too where it sees them, so that a large node is in memory once. Use it as a context manager.

    Args:
        skeleton: of the model.
        dtype: short name of weights and activations.
        options: of the target: the masks depend on its attention implementation.
        memory: bytes that the target's worker may take; larger nodes get fewer experts or tokens.

    Attributes:
        skeleton: of the model as it is built.
        dtype: see above.
        options: see above.
        memory: see above.
        firsts: kind -> its first node that a forward calls.
        reduction: how the model as it is built differs from the one that was given.

    Raises:
        TooLarge: E462, a node's weights do not fit, however few experts it gets.
    """

    def __init__(
        self, skeleton: Skeleton, dtype: str, options: Mapping[str, str], memory: int = 8 * 2**30
    ) -> None:
        self.dtype, self.options, self.memory = dtype, options, memory
        self._options = reference_options(options)
        self.firsts: dict[str, Node] = {}
        for node in skeleton.nodes:
            if node.called:
                self.firsts.setdefault(node.kind, node)
        self.skeleton = skeleton
        self._build()
        self.reduction = Reduction(skeleton.config)
        if max(map(bytes_of, self._shapes.values()), default=0) > KIND_SHARE * memory:
            self.reduction = reduced(skeleton.config, self._shapes, int(KIND_SHARE * memory))
            self.skeleton = skeleton.model_copy(update={"config": self.reduction.config})
            self._build()
        self._check(memory)
        self._glue = Glue(self.skeleton, dtype, self._options, _loose(self.skeleton, dtype))
        self._folder = tempfile.TemporaryDirectory(prefix="day0-kinds-")
        self._written: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> KindWalk:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def sizes(self) -> set[int]:
        """Every size of every weight."""
        return {size for shapes in self._shapes.values() for shape, _ in shapes.values() for size in shape}

    def shapes(self, node: Node) -> Shapes:
        """Parameter -> shape and bytes of one element."""
        return self._shapes[node.name]

    def weights(self, node: Node) -> Mapping[str, Any]:
        """Parameter -> weight expression: random numbers, fixed by kind and parameter."""
        if node.name not in self._written:
            path = Path(self._folder.name) / f"{len(self._written)}.bin"
            self._written[node.name] = _written(path, node.kind, self._modules.parameters(node.name))
        return self._written[node.name]

    def calls(
        self,
        tokens: Sequence[Sequence[int]],
        *,
        state: str,
        decode: bool = False,
        mask: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[FirstCall]:
        """The first call of each kind; whoever has seen enough may stop.

        Nodes after it take its output here, which is computed now at the latest, unless `FirstCall.output`
        was set to another one.

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
                    first = FirstCall(node, asked.call, partial(self._run, node, asked.call, state))
                    yield first
                    outputs[node.kind] = first.output or first.expected()
                asked.reply(outputs[node.kind])

    def forget(self, state: str) -> None:
        """Drops the sequence's cache."""
        self._modules.forget(state)

    def _build(self) -> None:
        self._modules = NodeModules(
            self.skeleton.config, self.skeleton.architecture, self.dtype, self._options
        )
        self._shapes = {
            node.name: {
                name: (list(place.shape), place.element_size())
                for name, place in self._modules.parameters(node.name).items()
            }
            for node in self.firsts.values()
        }

    def _check(self, memory: int) -> None:
        for name, shapes in self._shapes.items():
            if bytes_of(shapes) > KIND_SHARE_MOST * memory:
                raise TooLarge(
                    f"the weights of {name} take {bytes_of(shapes) / 2**30:.1f} GiB, more than "
                    f"{KIND_SHARE_MOST:.0%} of the {memory / 2**30:.0f} GiB that a worker may take",
                    remedy="Give a larger --memory.",
                )

    def _run(self, node: Node, call: Call, state: str) -> Call:
        args, kwargs = decode_arguments(call.tree, call.tensors)
        weights = {
            name: read_tensor(leaf["file"], leaf["offset"], leaf["dtype"], leaf["shape"])
            for name, leaf in self.weights(node).items()
        }
        try:
            return Call(*encode(self._modules.run(node.name, weights, args, kwargs, state)))
        except Exception as error:  # third-party model code may raise anything
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise Day0Error(f"{node.name} fails in {self.dtype} on the CPU: {text}", code="E460") from error


def batch(config: Mapping[str, Any], sequences: int, length: int) -> list[list[int]]:
    """Token ids that differ from each other as far as the vocabulary allows."""
    vocabulary = max(2, int(text_part(config).get("vocab_size") or 2))
    return [[(3 + 7 * row + 5 * place) % vocabulary for place in range(length)] for row in range(sequences)]


def _written(path: Path, kind: str, places: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Writes random parameters of a node into one file; parameter -> weight expression."""
    leaves: dict[str, Any] = {}
    with path.open("wb") as file:
        for name, place in places.items():
            file.write(bytes(-file.tell() % _ALIGNED))
            leaves[name] = {
                "file": str(path),
                "offset": file.tell(),
                "dtype": short_dtype(place.dtype),
                "shape": list(place.shape),
            }
            left = math.prod(place.shape)
            block = _random(f"{kind}.{name}", place, min(left, _BLOCK))
            while left > 0:
                file.write(block[:left].view(torch.uint8).numpy().data)
                left -= block.numel()
    return leaves


def _random(name: str, place: torch.Tensor, count: int) -> torch.Tensor:
    """Weights that keep activations finite: near 1 where they scale single elements, small elsewhere."""
    if not place.dtype.is_floating_point:
        return torch.zeros(count, dtype=place.dtype)
    draw = torch.Generator().manual_seed(int(digest(name)[:8], 16))
    value = torch.randn(count, generator=draw, dtype=torch.float32) * _SPREAD
    return (value + 1 if place.dim() == 1 else value).to(place.dtype)


def _loose(skeleton: Skeleton, dtype: str) -> dict[str, torch.Tensor]:
    """Random parameters for those that lie directly in a container of nodes: the glue itself uses them."""
    called = [node.name for node in skeleton.nodes if node.called]
    return {
        f"{node.name}.{name}": torch.randn(tuple(recipe.shape), dtype=torch.float32) * _SPREAD
        for node in skeleton.nodes
        if not node.called and any(name.startswith(f"{node.name}.") for name in called)
        for name, recipe in node.weights.items()
    }
