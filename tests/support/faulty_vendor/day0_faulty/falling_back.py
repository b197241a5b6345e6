"""A device in Python that has a kernel for `mm` and leaves the rest to the host: `fallen@abacus`.

`exp` has a kernel that computes on the host and says so as torch's own fallback does.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from day0.adapters.targets.eager import EagerStack

_setup_privateuseone_for_python_backend("abacus")
_LIBRARIES: list[torch.library.Library] = []


class OnAbacus(torch.Tensor):
    """A tensor of the device; its elements lie in `inner`, on the host."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch._C._acc.create_empty_tensor(inner.shape, inner.dtype)
        made.__class__ = OnAbacus
        return made

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner  # type: ignore[method-assign, assignment]  # torch has a method of that name


def to_host(value: Any) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, OnAbacus):
            return leaf.inner
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    return torch.utils._pytree.tree_map(one, value)


def to_abacus(value: Any) -> Any:
    def one(leaf: Any) -> Any:
        return OnAbacus(leaf) if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" else leaf

    return torch.utils._pytree.tree_map(one, value)


def on_host(op: Any, *args: Any, **kwargs: Any) -> Any:
    if "tril" in op.name():
        raise NotImplementedError(f"Could not run '{op.name()}' with arguments from the 'CPU' backend.")
    return to_abacus(op(*to_host(args), **to_host(kwargs)))


def mm(left: Any, right: Any) -> Any:
    # A kernel's own work on the host, for an operator that the device lacks, is no fallback.
    torch.cumsum(torch.ones(3), 0)
    return OnAbacus(torch.mm(left.inner, right.inner))


def exp(value: Any) -> Any:
    warnings.warn(
        "The operator 'aten::exp' is not currently supported on the Abacus backend and will fall back to run "
        "on the CPU.",
        stacklevel=1,
    )
    return OnAbacus(torch.exp(value.inner))


class FallingStack(EagerStack):
    name = "fallen"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        library: Any = torch.library.Library  # untyped, as are its methods
        own, rest = library("aten", "IMPL", "PrivateUse1"), library("_", "IMPL")
        _LIBRARIES.extend([own, rest])
        own.impl("mm", mm)
        own.impl("exp", exp)
        own.impl("empty.memory_format", lambda *given, **named: to_abacus(on_host_empty(*given, **named)))
        rest.fallback(on_host, "PrivateUse1")

    def describe(self) -> dict[str, Any]:
        return {
            "api": self.api,
            "capabilities": ["op"],
            "dtypes": {"weights": ["fp32"], "activations": ["fp32"]},
            "devices": [{"name": "abacus"}],
            "fingerprint": {"family": "fallen 1.0", "exact": {"fallen": "1.0"}},
        }

    def to_device(self, value: Any) -> Any:
        return to_abacus(value)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Any) -> Any:
        return to_host(super().run_op(op, args, kwargs))


def on_host_empty(*args: Any, **kwargs: Any) -> Any:
    kwargs["device"] = "cpu"
    return torch.ops.aten.empty.memory_format(*args, **kwargs)
