"""An operator rebuilt from others by torch's own decomposition."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from day0_worker.stack import StackError
from day0_worker.workarounds import Workaround


class Decompose(Workaround):
    """`decompose:OPERATOR`."""

    name = "decompose"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self.replaces = (argument,)

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """See `Workaround`: torch has a decomposition of it."""
        return bool(call["op"] == self.argument) and decomposition_of(self.argument) is not None

    def operators(self) -> Mapping[str, Callable[..., Any]]:
        """See `Workaround`.

        Raises:
            StackError: `unsupported`, this torch has no decomposition of it.
        """
        function = decomposition_of(self.argument)
        if function is None:
            raise StackError(f"this torch has no decomposition of {self.argument}", "unsupported")
        return {self.argument: function}


def decomposition_of(op: str) -> Any:
    """Torch's own decomposition of an operator, or None; composite ones and primitives bring it along."""
    from torch._decomp import decomposition_table

    from day0_worker.operators import resolve

    function = resolve(op)
    if op.startswith("prims."):
        return getattr(function, "impl_aten", None)
    known = decomposition_table.get(function)
    if known is None and function._can_decompose():
        return lambda *args, **kwargs: function.decompose(*args, **kwargs)
    return known
