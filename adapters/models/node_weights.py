"""The weights of a node, read once for the reference, the noise arm and the target, within a bound.

A parameter is read and dequantised when somebody first asks for it, one at a time, and what the target takes
is made in the same go, in a file that a worker maps. Bound: what is handed out and still held, the file, the
stored bytes of the node (those of experts only while a chunk of them is used), and the budget of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.checkpoint import Checkpoint
from ..base.skeleton import Node
from .buffers import Buffers
from .expert_slices import compacted
from .parameters import Made, Parameters
from .raw_tensors import RawTensors
from .spool import Layout, Region, open_region
from .weights import resolved, tensors_in

SPARE_BYTES = 2**30
"""Memory that is kept between one parameter and the next, so that its pages need not be made anew."""


@dataclass(frozen=True)
class ExpertStack:
    """Weights of some experts, in the order of `ids`. Good as long as it, or a tensor of it, is held.

    Attributes:
        ids: of the experts.
        exact: parameter of the experts' module -> [len(ids), ...], as stored, fp32 where dequantised.
        lowered: the same in the target's dtypes.
        sent: expressions of `lowered` for a worker, which is to use them before the next stack but one.
    """

    ids: Sequence[int]
    exact: Mapping[str, Tensor]
    lowered: Mapping[str, Tensor]
    sent: Mapping[str, Any]


class NodeWeights:
    """The weights of one node; `WeightReader.open` makes it, `close` ends it.

    Attributes:
        expert_bytes: one expert in fp32; 0 where the node has none.
    """

    def __init__(
        self,
        node: Node,
        dtypes: Mapping[str, torch.dtype],
        raw: RawTensors,
        buffers: Buffers,
        *,
        without_experts: bool,
    ) -> None:
        self._node, self._dtypes, self._raw, self._buffers = node, dtypes, raw, buffers
        self._prefix = f"{node.experts}." if node.experts else ""
        self._expert_names = [name for name in node.weights if self._is_expert(name)]
        self.expert_bytes = sum(4 * math.prod(node.weights[name].shape[1:]) for name in self._expert_names)
        left_out = set(self._expert_names) if without_experts else set()
        names = [name for name in node.weights if name not in left_out]
        raw.stage(tensors_in([recipe.expression for recipe in node.weights.values()]))
        self._experts: dict[str, Any] = {}
        self._regions: list[Region] = []
        self._own: Region | None = None
        self._parameters = Parameters(
            node.name,
            {name: resolved(node.weights[name].expression, raw.leaf) for name in names},
            dtypes,
            raw,
            buffers,
            self._own_region,
            chosen={},
            keep=False,
        )

    def exact(self) -> Mapping[str, Tensor]:
        """Parameter -> tensor as stored, fp32 where it was dequantised, made at each access.

        One that a file holds as it is, is a view of the file: treat it as read-only.

        Raises:
            CheckpointError: at the access, E461 it cannot be read, E210 there is no room for the target's.
        """
        return Made(self._parameters.names, self._parameters.exact)

    def lowered(self) -> Mapping[str, Tensor]:
        """Parameter -> tensor in the dtype in which the target's model holds it, made once; read-only, too.

        Raises:
            CheckpointError: see `exact`.
        """
        return Made(self._parameters.names, self._parameters.lowered)

    def sent(self) -> Mapping[str, Any]:
        """Parameter -> expression of `lowered` for `Target.run`; all of them are made now.

        Raises:
            CheckpointError: see `exact`.
        """
        return {name: self._parameters.sent(name) for name in self._parameters.names}

    def experts(self, ids: Sequence[int]) -> ExpertStack:
        """The weights of some experts alone.

        Args:
            ids: of experts, in any order.

        Raises:
            CheckpointError: see `exact`.
        """
        expressions, chosen = self._compacted(ids)
        parameters = Parameters(
            f"experts of {self._node.name}",
            expressions,
            {
                name: self._dtypes[full]
                for name in expressions
                if (full := self._prefix + name) in self._dtypes
            },
            self._raw,
            self._buffers,
            self._chunk_region,
            chosen=chosen,
            keep=True,
        )
        names = parameters.names
        return ExpertStack(
            tuple(ids),
            Made(names, parameters.exact),
            Made(names, parameters.lowered),
            Made(names, parameters.sent),
        )

    def prefetch_experts(self, ids: Sequence[int]) -> None:
        """Reads the stored bytes of experts ahead, as far as the reader's budget goes, without waiting."""
        self._raw.read_ahead(self._compacted(ids)[0].values(), "experts")

    def close(self) -> None:
        """Removes the files; tensors that are still held stay good."""
        self._parameters.clear()  # they know this object, which would else live until cycles are looked for
        for region in (self._own, *self._regions):
            if region is not None:
                region.close()
        self._own, self._regions = None, []

    def _is_expert(self, name: str) -> bool:
        return bool(self._prefix) and name.startswith(self._prefix)

    def _compacted(self, ids: Sequence[int]) -> tuple[dict[str, Any], dict[str, Sequence[int]]]:
        """Expressions of these experts; for those that cannot be taken apart the whole, and the ids."""
        if not self._experts:
            self._experts = {
                name.removeprefix(self._prefix): resolved(self._node.weights[name].expression, self._raw.leaf)
                for name in self._expert_names
            }
        expressions: dict[str, Any] = {}
        chosen: dict[str, Sequence[int]] = {}
        for name, expression in self._experts.items():
            try:
                expressions[name] = compacted(expression, ids)
            except ValueError:
                expressions[name], chosen[name] = expression, ids
        return expressions, chosen

    def _own_region(self, layout: Layout) -> Region:
        self._own = open_region(layout)
        return self._own

    def _chunk_region(self, layout: Layout) -> Region:
        """A file for a stack: never that of the last one, from which a worker may still read."""
        for region in self._regions[:-1]:
            region.clear()
            if not region.used and region.lay(layout):
                self._regions.remove(region)
                self._regions.append(region)
                return region
        self._regions.append(open_region(layout))
        return self._regions[-1]


class WeightReader:
    """Reads the weights of one checkpoint node by node. Use `close` at the end.

    Args:
        checkpoint: whose weights.
        budget: bytes of stored tensors that may lie ready beside those in use.
    """

    def __init__(self, checkpoint: Checkpoint, *, budget: int = 0) -> None:
        self._buffers = Buffers(SPARE_BYTES)
        self._raw = RawTensors(checkpoint, budget, self._buffers)

    @property
    def bytes_read(self) -> int:
        """Of the checkpoint, each byte once for each node that was opened."""
        return self._raw.bytes_read

    def open(
        self, node: Node, lowered_dtypes: Mapping[str, torch.dtype], *, without_experts: bool
    ) -> NodeWeights:
        """The weights of a node.

        Args:
            node: of the skeleton.
            lowered_dtypes: parameter -> in which the target's model holds it; as stored where there is none.
            without_experts: whether those of `node.experts` are left out but for `NodeWeights.experts`.

        Raises:
            CheckpointError: E330, the checkpoint lacks a tensor; E461, an expression makes no sense.
            SourceError: a remote checkpoint cannot be read.
        """
        self._buffers.clear()  # those of another node seldom fit, and would lie beside the new ones
        return NodeWeights(node, lowered_dtypes, self._raw, self._buffers, without_experts=without_experts)

    def prefetch(self, node: Node) -> None:
        """Reads the stored bytes of the node that comes next ahead, as far as the budget goes.

        Does not wait. Those of experts are not read, since it is not known which will be needed.
        """
        prefix = f"{node.experts}." if node.experts else None
        recipes = [
            recipe.expression
            for name, recipe in node.weights.items()
            if prefix is None or not name.startswith(prefix)
        ]
        self._raw.prefetch(recipes)

    def close(self) -> None:
        """Ends what is on its way."""
        self._raw.close()
        self._buffers.clear()
