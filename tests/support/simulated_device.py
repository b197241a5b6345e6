"""A device of torch's own kind (PrivateUse1) that does not exist: `npu`, in Python, on the CPU's kernels.

Tensors say `device.type == "npu"`, so that code which asks for a device behaves as on one; what runs below
autograd meets a table of kernels from which chosen ones can be taken away or spoilt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "npu"
Kernel = Callable[..., Any]
Spoilt = Mapping[str, Callable[[Kernel, Sequence[Any], Mapping[str, Any]], Any]]
"""Operator -> what happens in its place, given the CPU's kernel and its arguments."""

_MATH = 0
"""What the device answers to scaled_dot_product_attention's question for a kernel: it has none of its own."""


def register() -> None:
    """Makes torch know the device; once a process."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        _setup_privateuseone_for_python_backend(NAME)


class DeviceTensor(torch.Tensor):
    """A tensor on the device: sizes and strides as torch sees them, values in `raw` on the host."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> DeviceTensor:
        made: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), dtype=raw.dtype, device=torch.device(NAME, 0)
        )
        made.raw = raw
        return made

    def __init__(self, raw: torch.Tensor) -> None:
        """Everything is done in `__new__`."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch calls it on the class
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only reached outside of `Device`: nothing but a copy to the host is known there."""
        if func is torch.ops.aten._to_copy.default or func is torch.ops.aten.detach.default:
            return func(*_host(args), **_host(dict(kwargs or {})))
        raise NotImplementedError(f"{func} was called on the simulated device while it is off")


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own class has no types
    """While it is on, operators on the device run.

    Args:
        missing: operators without a kernel.
        spoilt: see `Spoilt`.
    """

    def __init__(self, missing: frozenset[str] = frozenset(), spoilt: Spoilt | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        register()
        self.missing, self.spoilt = missing, dict(spoilt or {})

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs a kernel of the table on what lies on the device."""
        named = dict(kwargs or {})
        if not _concerns(args, named):
            return func(*args, **named)
        name = str(func)
        if name in self.missing:
            raise _without_kernel(func)
        if name == "aten._fused_sdp_choice.default":
            return _MATH
        spoil = self.spoilt.get(name)
        hosted, hosted_named = _host(list(args)), _host(named)
        made = spoil(func, hosted, hosted_named) if spoil else func(*hosted, **hosted_named)
        if func is torch.ops.aten._to_copy.default and not _to_device(args, named):
            return made
        return _placed(made, args, named)


def values_of(tree: Any) -> Any:
    """The tree with the values of tensors on the device in their places."""
    return _host(tree)


def _without_kernel(func: Any) -> NotImplementedError:
    """What torch says of an operator that nobody registered for the device."""
    return NotImplementedError(
        f"Could not run '{func._schema.name}' with arguments from the '{NAME}' backend. This could be "
        "because the operator doesn't exist for this backend."
    )


def _concerns(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(
        isinstance(leaf, DeviceTensor) or (isinstance(leaf, torch.device) and leaf.type == NAME)
        for leaf in pytree.tree_leaves((args, kwargs))
    )


def _to_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    return device.type == NAME if device is not None else isinstance(args[0], DeviceTensor)


def _host(tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, DeviceTensor):
            return leaf.raw
        return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == NAME else leaf

    return pytree.tree_map(one, tree)


def _placed(made: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result on the device; a tensor that an operator changed in place stays the one that it was."""
    given = {
        id(leaf.raw): leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor)
    }

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = given.get(id(leaf))
        return DeviceTensor(leaf) if known is None else known

    return pytree.tree_map(one, made)
