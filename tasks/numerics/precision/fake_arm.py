"""The noise arm for a target in a precision in which the reference cannot compute: fake-quantised.

It is the reference in the precision that activations keep, but for products of the matrices that engines
lower: these, and the tokens that are multiplied with them, hold the numbers of the lower precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target import Call, Paused

from ...reference_arm import Arm, within
from ..walk.case import Case
from .fake_products import FakeProducts, Held
from .lowerings import Lowering
from .roles import roles_of

KEPT = ("embedding", "norm", "router", "head")
"""Roles that stay as they are. Engines lower all linear layers but these: head and routers are what recipes
for fp8 and int8 leave out (`ignore` of compressed-tensors, `modules_to_not_convert` of transformers),
embeddings and norms multiply no matrix."""


class FakeArm(Arm):
    """An arm whose matrices and their inputs are rounded; experts alike, in whatever chunks they come.

    Args:
        skeleton: of the model.
        dtype: short name of what everything else is computed in.
        options: of the target, for the masks.
        lowering: how matrices and their inputs are held.

    Attributes:
        lowering: see above.
    """

    plain = False

    def __init__(
        self, skeleton: Skeleton, dtype: str, options: Mapping[str, str], lowering: Lowering
    ) -> None:
        super().__init__(skeleton, dtype, options)
        self.lowering = lowering
        self._left = frozenset(
            f"{node}.{name}"
            for node, parts in roles_of(skeleton).items()
            for name, role in parts.items()
            if role in KEPT
        )
        self._held = Held(lowering.matrices)

    @property
    def identity(self) -> Sequence[Any]:
        """See `Arm`."""
        return [*super().identity, self.lowering.dtype, self.lowering.text]

    def load(self, node: Node, weights: Mapping[str, Tensor]) -> None:
        """See `Arm`."""
        super().load(node, weights)
        self._held.put(self._lowered(node.name, self.parameters(node)))

    def free(self, node: Node) -> None:
        """See `Arm`."""
        self._held.put(())
        super().free(node)

    def run(
        self, node: Node, weights: Mapping[str, Tensor] | None, call: Call, *, state: str | None = None
    ) -> Call:
        """See `Arm`."""
        if weights is None:
            with self._rounding(self._held):
                return super().run(node, None, call, state=state)
        self.load(node, weights)
        try:
            return self.run(node, None, call, state=state)
        finally:
            self.free(node)

    def start(
        self,
        node: Node,
        call: Call,
        *,
        state: str | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Call | Paused:
        """See `Arm`."""
        if not node.experts:
            return super().start(node, call, state=state, around=around)
        inside = self._rounding
        return super().start(node, call, state=state, around=lambda: within(around(), inside(self._held)))

    def run_experts(
        self, node: Node, stack: Mapping[str, Tensor], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """See `Arm`."""
        held = Held(self.lowering.matrices, keep=False)  # each expert is met once in a chunk
        held.put(self._lowered(f"{node.name}.{node.experts}", stack))
        with self._rounding(held):
            return super().run_experts(node, stack, hidden, ids, weights)

    def _rounding(self, held: Held) -> FakeProducts:
        return FakeProducts(held, self.lowering.inputs)

    def _lowered(self, path: str, weights: Mapping[str, Tensor]) -> Iterable[Tensor]:
        return [tensor for name, tensor in weights.items() if f"{path}.{name}" not in self._left]


def noise_arm(case: Case) -> Arm:
    """The arm whose distance from the reference is the noise of the case's target."""
    if case.fake is None:
        return Arm(case.skeleton, case.dtype, case.options)
    return FakeArm(case.skeleton, case.dtype, case.options, case.fake)
