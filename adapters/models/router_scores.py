"""What a router chose its experts from: the calls of `topk` while a node runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..base.target import TopK


class RouterScores(TorchDispatchMode):
    """Records each `aten.topk` of the largest along the last dimension, below autograd.

    A router that chooses otherwise (by sorting, by a kernel of its own) leaves nothing here.

    Args:
        experts: how many there are; choices out of more are not a router's.
    """

    def __init__(self, experts: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self._experts = experts
        self._found: list[TopK] = []

    def taken(self) -> Sequence[TopK]:
        """What was recorded since the last call of this, in order."""
        found, self._found = self._found, []
        return tuple(found)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operator as it is."""
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.topk.default:
            self._note(args, kwargs or {}, result)
        return result

    def _note(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        names = [argument.name for argument in torch.ops.aten.topk.default._schema.arguments]
        given = {"dim": -1, "largest": True} | dict(zip(names, args, strict=False)) | dict(kwargs)
        scores = given["self"]
        last = given["dim"] in (-1, scores.dim() - 1)
        if last and given["largest"] and scores.dim() and scores.shape[-1] <= self._experts:
            # Copies: a router may go on to write into its scores.
            self._found.append(TopK(scores.detach().clone(), int(given["k"]), result[1].detach().clone()))
