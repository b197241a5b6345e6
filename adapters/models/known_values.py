"""Values that need no weights: of token ids, image grids and all that is computed from them, on meta.

Code of vision towers and of merging images into text computes with grids and token ids: how many patches,
which positions, where one image ends. Those values are carried beside the meta tensors, so that such code
runs as it does on a device, at full width and without memory for weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_flatten, tree_map_only

from .oracle import ValueOracle

MOST_VALUES = 2**22
"""Elements up to which values are carried: the mask of a few hundred image tokens over all features."""

_VALUE = "_day0_value"
_aten = torch.ops.aten
_DYNAMIC = frozenset(
    {
        _aten._local_scalar_dense.default,
        _aten.equal.default,
        _aten.nonzero.default,
        _aten.masked_select.default,
        _aten.bincount.default,
        _aten.repeat_interleave.Tensor,
        _aten._unique2.default,
        _aten.unique_dim.default,
        _aten.unique_consecutive.default,
        _aten.index.Tensor,
    }
)
"""Operators whose result's shape, or which number, depends on values."""

_UNWRITTEN = frozenset({_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default})
"""Operators whose result holds whatever lay there before; zeros here, so that each run is like the other."""


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor on meta, on the CPU; None where nothing is known."""
    value: torch.Tensor | None = getattr(tensor, _VALUE, None)
    return value


def with_values(value: torch.Tensor) -> torch.Tensor:
    """A tensor on meta whose values are known."""
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    setattr(made, _VALUE, value)
    return made


class KnownValues(ValueOracle):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Answers from values where they are known, and as the oracle does where they are not.

    Args:
        answer: see `ValueOracle`.
    """

    def __init__(self, answer: bool) -> None:
        super().__init__(answer)
        self._stale: dict[int, Any] = {}

    def creation(self) -> TorchFunctionMode:
        """A mode in which tensors that code makes of numbers on meta keep these as values."""
        return _Creation()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _to_the_host(func, args, kwargs):
            value = self._computed(func, args, kwargs)
            return super().__torch_dispatch__(func, types, args, kwargs) if value is None else value
        if func in _DYNAMIC and (value := self._computed(func, args, kwargs)) is not None:
            return tree_map_only(torch.Tensor, with_values, value)
        output = super().__torch_dispatch__(func, types, self._counted(func, args), kwargs)
        made = [leaf for leaf in tree_flatten(output)[0] if isinstance(leaf, torch.Tensor)]
        if not made or any(not one.is_meta or one.numel() > MOST_VALUES for one in made):
            value = None
        else:
            value = self._computed(func, args, kwargs)
        if value is None:
            self._forget(func, args, kwargs)
            return output
        for one, its in zip(made, tree_flatten(value)[0], strict=True):
            setattr(one, _VALUE, its)
        return output

    def _computed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator gives on the CPU; None where an argument is not known or chance decides."""

        def unknown(leaf: Any) -> bool:
            return isinstance(leaf, torch.Tensor) and self._value(leaf) is None

        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        if tree_any(
            lambda leaf: isinstance(leaf, torch.Tensor) and self._value(leaf) is None, (args, kwargs)
        ):
            return None
        plain_args, plain_kwargs = tree_map_only(torch.Tensor, self._value, (tuple(args), dict(kwargs)))
        if "device" in plain_kwargs:
            plain_kwargs["device"] = torch.device("cpu")
        value = func(*plain_args, **plain_kwargs)
        return value.zero_() if func in _UNWRITTEN else value

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not tensor.is_meta:
            return tensor if tensor.numel() <= MOST_VALUES else None
        value = known(tensor)
        return None if value is None or value.untyped_storage()._cdata in self._stale else value

    def _counted(self, func: Any, args: Sequence[Any]) -> Sequence[Any]:
        """Masks whose values are known, as the indices that they select."""
        if func is not _aten.index.Tensor:
            return args
        indices: list[Any] = []
        for index in args[1]:
            value = None if index is None else self._value(index)
            if value is not None and value.dtype in (torch.bool, torch.uint8):
                hits = int(value.count_nonzero())
                indices += [torch.empty(hits, dtype=torch.int64, device="meta") for _ in range(value.dim())]
            else:
                indices.append(index)
        return (args[0], indices, *args[2:])

    def _forget(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Values of what is written to are not known any more."""
        named = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in tree_flatten(named.get(argument.name, named.get(str(place))))[0]:
                if isinstance(tensor, torch.Tensor) and (value := known(tensor)) is not None:
                    storage = value.untyped_storage()
                    self._stale[storage._cdata] = storage


class _Creation(TorchFunctionMode):
    """`torch.tensor([...])` and the like: torch makes them on meta without anybody seeing the numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        data = args[0] if args else kwargs.get("data")
        if func in (torch.tensor, torch.as_tensor) and not isinstance(data, torch.Tensor):
            if _is_meta(kwargs.get("device")):
                return func(*_plain(args), **{**_plain(kwargs), "device": "cpu"}).to("meta")
        elif func is torch.Tensor.new_tensor and args[0].is_meta and kwargs.get("device") is None:
            kwargs.setdefault("dtype", args[0].dtype)
            return torch.tensor(*_plain(args[1:]), **{**_plain(kwargs), "device": "cpu"}).to("meta")
        if func is torch.Tensor.numpy and (value := known(args[0])) is not None:
            return value.numpy()
        return func(*args, **kwargs)


def _plain(arguments: Any) -> Any:
    """With the numbers of tensors that are among them."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.tolist(), arguments)


def _is_meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"


def _to_the_host(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    moved = func is _aten._to_copy.default and device is not None and torch.device(device).type != "meta"
    written = func is _aten.copy_.default and not args[0].is_meta
    return moved or written
