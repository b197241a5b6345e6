"""Acme's stack: eager torch with a kernel of its own and a library version in the fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.targets.eager import EagerStack

from . import kernels


class AcmeStack(EagerStack):
    """Torch's devices, Acme's kernels."""

    name = "acme"
    engine = "acme"

    def engine_version(self) -> str:
        """Of the kernel library."""
        return kernels.VERSION

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs Acme's kernel where there is one."""
        if op != "aten.silu.default":
            return super().run_op(op, args, kwargs)
        self.used("kernel", "acme_silu")
        (values,) = self.to_device(list(args))
        with self.timed():
            return kernels.silu(values)
