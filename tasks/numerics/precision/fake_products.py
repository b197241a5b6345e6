"""Products as an engine of a lower precision computes them: weight and inputs rounded, summed in fp32.

Seen below autograd, like `day0.tasks.numerics.precision.products`, where every linear layer and expert is
one of a few products. A weight is known by where it lies in memory, so that its views, its transposition and
slices of a stack of experts are known, too; copies are followed. The rounded weight is held in the weight's
own dtype, which takes half of what fp32 would: bf16 holds an fp8 number times its scale to 2^-9, where
rounding to fp8 has lost up to 2^-4, and to int8 up to 2^-8 of the channel's largest. Inputs stay in fp32 from
their rounding to the product; sums are in fp32, bias included, and rounded once, as at the end of such a
kernel.

Bound: one rounded weight beside each that is kept, one matrix in fp32, one block of it several times more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .fake_precision import BLOCK, Scheme, rounded
from .products import FACTORS

LEAST = 16
"""Inputs and outputs below which a product stays as it is: kernels for fp8 and int8 take sizes that are
multiples of 16 (`torch._scaled_mm`), so engines leave such layers alone, e.g. the gate of a shared expert."""
_ROUNDED_AT_ONCE = 2**22
"""Elements of a weight that are rounded together; a multiple of what shares a scale."""
_ATEN = torch.ops.aten
_COPIES = (_ATEN._to_copy.default, _ATEN.clone.default, _ATEN.index.Tensor, _ATEN.index_select.default)


class Held:
    """The weights that are in place and are to be rounded.

    Args:
        scheme: how they are held.
        keep: whether a weight that a product shows whole is rounded once, until others are put in place.
    """

    def __init__(self, scheme: Scheme, *, keep: bool = True) -> None:
        self._scheme, self._keep = scheme, keep
        self._starts: list[int] = []
        self._weights: list[Tensor] = []
        self._rounded: dict[tuple[Any, ...], Tensor] = {}

    def put(self, weights: Iterable[Tensor]) -> None:
        """These, and no others, are in place now."""
        self._rounded.clear()
        self._weights = sorted(
            (one for one in weights if one.is_floating_point() and one.numel()),
            key=lambda one: one.data_ptr(),
        )
        self._starts = [one.data_ptr() for one in self._weights]

    def find(self, tensor: Tensor) -> Tensor | None:
        """The weight that a tensor shows, or shows a part of."""
        place = bisect_right(self._starts, tensor.data_ptr()) - 1
        if place < 0:
            return None
        weight = self._weights[place]
        return weight if tensor.data_ptr() < weight.data_ptr() + weight.nbytes else None

    def rounded(self, shown: Tensor, axis: int) -> Tensor:
        """What a tensor shows of a weight, as the scheme would hold it, in the tensor's dtype.

        Args:
            shown: the weight or a part of it.
            axis: that the product sums over, -1 or -2.
        """
        weight = self.find(shown)
        whole = self._keep and weight is not None and weight.numel() == shown.numel()
        key = (shown.data_ptr(), tuple(shown.shape), shown.stride(), axis)
        known = self._rounded.get(key) if whole else None
        if known is None:
            known = _in_blocks(shown, self._scheme, axis)
            if whole:
                self._rounded[key] = known
        return known


class FakeProducts(TorchDispatchMode):
    """While it is entered, products with the held weights are those of a lower precision.

    Args:
        held: the weights.
        inputs: how each token that is multiplied with them is rounded.
    """

    def __init__(self, held: Held, inputs: Scheme) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self._held, self._inputs = held, inputs
        self._copies: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operator."""
        if func in FACTORS:
            left, right = FACTORS[func]
            inner = -1 if args[right].dim() == 1 else -2
            if self._lowered(args[right]):
                return self._product(func, args, kwargs or {}, (right, inner), (left, -1))
            if self._lowered(args[left]):
                return self._product(func, args, kwargs or {}, (left, -1), (right, inner))
        result = func(*args, **(kwargs or {}))
        if func in _COPIES and isinstance(result, Tensor) and self._shows(args[0]):
            self._copies.append(result)
        return result

    def _shows(self, tensor: Tensor) -> bool:
        if not tensor.numel():
            return False
        start = tensor.data_ptr()
        copied = any(one.data_ptr() <= start < one.data_ptr() + one.nbytes for one in self._copies)
        return copied or self._held.find(tensor) is not None

    def _lowered(self, factor: Tensor) -> bool:
        large = factor.dim() > 1 and min(factor.shape[-2:]) >= LEAST
        return large and factor.is_floating_point() and self._shows(factor)

    def _product(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        weight: tuple[int, int],
        other: tuple[int, int],
    ) -> Any:
        """The product of a weight and something else, each with its place in the arguments and its axis."""
        (place, axis), (beside, along) = weight, other
        dtype = args[place].dtype
        wide = torch.promote_types(dtype, torch.float32)
        given = [one.to(wide) if isinstance(one, Tensor) else one for one in args]
        given[place] = self._held.rounded(args[place], axis).to(wide)
        given[beside] = rounded(given[beside], self._inputs, along)
        return func(*given, **kwargs).to(dtype)


def _in_blocks(shown: Tensor, scheme: Scheme, axis: int) -> Tensor:
    """`rounded`, a block at a time, since it makes several copies in fp32 of what it is given."""
    if shown.dim() > 2:
        return torch.stack([_in_blocks(one, scheme, axis) for one in shown])
    made = torch.empty_like(shown)
    across = -1 if axis == -2 else -2
    step = max(1, _ROUNDED_AT_ONCE // max(1, shown.shape[axis]) // BLOCK) * BLOCK
    blocks = zip(torch.split(shown, step, across), torch.split(made, step, across), strict=True)
    for source, target in blocks:
        target.copy_(rounded(source.to(torch.promote_types(source.dtype, torch.float32)), scheme, axis))
    return made
