"""Which weights a model multiplies by while it runs, and rounding of what they are multiplied with.

Seen below autograd, where every linear layer, router and expert is one of a few products, whatever its module
is called. A weight is known by its storage, which views and transpositions share; a copy in another dtype
(routers that compute in fp32) is followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .fake_precision import Scheme, rounded

_ATEN = torch.ops.aten
FACTORS = {
    _ATEN.mm.default: (0, 1),
    _ATEN.bmm.default: (0, 1),
    _ATEN.mv.default: (0, 1),
    _ATEN.addmm.default: (1, 2),
    _ATEN.baddbmm.default: (1, 2),
    _ATEN.addmv.default: (1, 2),
}
"""Product -> places of its two factors."""


@dataclass
class Loaded:
    """The weights that are in place.

    Attributes:
        axes: parameter -> dimension that the model's products sum over, or along which a row is looked up;
            grows while the model runs.
    """

    axes: dict[str, int] = field(default_factory=dict)
    _names: dict[int, tuple[str, Tensor]] = field(default_factory=dict)
    _copies: list[Tensor] = field(default_factory=list)

    def put(self, weights: Mapping[str, Tensor]) -> None:
        """These, and no others, are in place now."""
        self._copies.clear()
        self._names = {_place(tensor): (name, tensor) for name, tensor in weights.items() if tensor.numel()}

    def find(self, tensor: Any) -> tuple[str, Tensor] | None:
        """Name and whole of the weight that a tensor shows, if it shows one."""
        return self._names.get(_place(tensor)) if isinstance(tensor, Tensor) and tensor.numel() else None

    def follow(self, weight: tuple[str, Tensor], copy: Tensor) -> None:
        """A copy counts as the weight, for as long as others are not put in place."""
        self._copies.append(copy)  # its storage must not be used again for something else
        self._names[_place(copy)] = (weight[0], copy)

    def note(self, weight: tuple[str, Tensor], shown: Tensor, axis: int) -> None:
        """A product sums over an axis of what a tensor shows of the weight."""
        name, whole = weight
        if name in self.axes:
            return
        stride = shown.stride(axis)
        for dim in range(whole.dim()):
            if whole.stride(dim) == stride and whole.shape[dim] > 1:
                self.axes[name] = dim


class Products(TorchDispatchMode):
    """While it is entered, the axes of weights are noted and inputs of products rounded.

    Args:
        loaded: the weights that are in place.
        inputs: parameter -> how each token that is multiplied with it is rounded; others stay.
    """

    def __init__(self, loaded: Loaded, inputs: Mapping[str, Scheme] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self._loaded, self._inputs = loaded, dict(inputs or {})

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operator, a product of a weight with rounded inputs."""
        if func in FACTORS:
            args = self._product(list(args), *FACTORS[func])
        elif func is _ATEN.embedding.default:
            self._looked_up(args[0])
        result = func(*args, **(kwargs or {}))
        if func is _ATEN._to_copy.default and (weight := self._loaded.find(args[0])) is not None:
            self._loaded.follow(weight, result)
        return result

    def _product(self, args: list[Any], left: int, right: int) -> list[Any]:
        inner = -1 if args[right].dim() == 1 else -2
        weight = self._loaded.find(args[right])
        place, axis, other, other_axis = right, inner, left, -1
        if weight is None:
            weight = self._loaded.find(args[left])
            place, axis, other, other_axis = left, -1, right, inner
        if weight is not None:
            self._loaded.note(weight, args[place], axis)
            scheme = self._inputs.get(weight[0])
            if scheme is not None and args[other].is_floating_point():
                args[other] = rounded(args[other], scheme, other_axis)
        return args

    def _looked_up(self, table: Tensor) -> None:
        weight = self._loaded.find(table)
        if weight is not None:
            self._loaded.axes.setdefault(weight[0], table.dim() - 1)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
