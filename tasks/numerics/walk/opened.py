"""A node's weights while it runs; those of the next come meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.skeleton import Node
from day0.adapters.models.node_weights import NodeWeights, WeightReader

from ...target_nodes import TargetNodes


class Opened:
    """Use it as a context manager; it gives the weights, and those with all experts where they are needed.

    Args:
        reader: of the checkpoint.
        node: of the skeleton.
        dtypes: parameter -> in which the target's model holds it.
        target: that will run the node; None: only the reference does.
        following: the node whose weights are wanted next, or None.
    """

    def __init__(
        self,
        reader: WeightReader,
        node: Node,
        dtypes: Mapping[str, torch.dtype],
        target: TargetNodes | None,
        following: Node | None,
    ) -> None:
        self._reader, self._node, self._dtypes, self._next = reader, node, dtypes, following
        self._whole = bool(node.experts) and target is not None and not target.parts
        self._open: list[NodeWeights] = []

    def __enter__(self) -> tuple[NodeWeights, NodeWeights | None]:
        """Opens them.

        Raises:
            CheckpointError: E461, the node's weights are not all there.
        """
        if self._node.missing:
            lacking = ", ".join(self._node.missing[:5])
            raise CheckpointError(
                f"{self._node.name} cannot run: the checkpoint lacks {lacking}", code="E461"
            )
        parts = bool(self._node.experts)
        self._open.append(self._reader.open(self._node, self._dtypes, without_experts=parts))
        if self._whole:
            self._open.append(self._reader.open(self._node, self._dtypes, without_experts=False))
        if self._next is not None:
            self._reader.prefetch(self._next)
        return self._open[0], self._open[1] if self._whole else None

    def __exit__(self, *exception: object) -> None:
        for weights in self._open:
            weights.close()
