"""Arguments of a dispatched operator as a hashable key and as the JSON of `OperatorCall`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from ..base.dtypes import FROM_TORCH
from ..base.operator_call import Encoded, OperatorCall
from ..base.values import json_number


def dtype_name(dtype: torch.dtype) -> str:
    """The short name; torch's own name where the vocabulary has none (`complex128`)."""
    name = str(dtype).removeprefix("torch.")
    return FROM_TORCH.get(name, name)


class Arguments:
    """One call's arguments, walked once for a key and, where that key is new, once for the JSON.

    Args:
        args: positional arguments as dispatched.
        kwargs: keyword arguments as dispatched.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self._aliases: dict[int, int] = {}
        self._tensors: list[torch.Tensor] = []

    def key(self) -> Hashable:
        """Equal for calls whose encoded arguments are equal."""
        self._aliases.clear()
        return (self._freeze(self.args), self._freeze(sorted(self.kwargs.items())))

    def call(self, op: str, *, module: str, phase: str, schema: Any = None) -> OperatorCall:
        """The call as a value.

        Args:
            op: its name.
            module: that makes it.
            phase: in which.
            schema: torch's, which names the attributes; None: they stay unnamed.

        Raises:
            TypeError: an argument of a kind that the JSON form does not know.
        """
        self._aliases.clear()
        self._tensors.clear()
        args = [self._encode(arg) for arg in self.args]
        kwargs = {name: self._encode(value) for name, value in sorted(self.kwargs.items())}
        attributes = {} if schema is None else attributes_of(schema, args, kwargs)
        return OperatorCall(
            op=op,
            args=args,
            kwargs=kwargs,
            attributes=attributes,
            variant="" if schema is None else variant_of(schema, attributes),
            dtypes=[dtype_name(tensor.dtype) for tensor in self._tensors],
            shapes=[list(tensor.shape) for tensor in self._tensors],
            module=module,
            phase=phase,
        )

    def _alias(self, tensor: torch.Tensor) -> int:
        return self._aliases.setdefault(id(tensor), len(self._aliases))

    def _freeze(self, value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            # Wrapped numbers (0-dim, from a Python scalar) promote differently, hence the device in the key.
            return (value.dtype, value.shape, value.stride(), value.is_meta, self._alias(value))
        if isinstance(value, (list, tuple)):
            return tuple(self._freeze(item) for item in value)
        if isinstance(value, float):
            return ("float", repr(value))
        if isinstance(value, (bool, int)):
            return (type(value).__name__, value)
        return value if isinstance(value, Hashable) else repr(value)

    def _encode(self, value: Any) -> Encoded:
        if isinstance(value, torch.Tensor):
            return self._encode_tensor(value)
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": json_number(value)}
        if isinstance(value, complex):
            return {"complex": [json_number(value.real), json_number(value.imag)]}
        if isinstance(value, (list, tuple)):
            return [self._encode(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": "target" if value.type == "meta" else value.type}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.").removesuffix("_format")}
        if isinstance(value, torch.layout):
            return {"layout": str(value).removeprefix("torch.")}
        raise TypeError(f"argument of type {type(value).__name__} has no JSON form")

    def _encode_tensor(self, tensor: torch.Tensor) -> Encoded:
        known = len(self._aliases)
        alias = self._alias(tensor)
        if alias == known:
            self._tensors.append(tensor)
        facts: dict[str, Any] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "alias": alias,
        }
        if not tensor.is_meta:
            facts["device"] = "cpu"
        return {"tensor": facts}


_PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


def attributes_of(schema: Any, args: Sequence[Encoded], kwargs: Mapping[str, Encoded]) -> dict[str, Encoded]:
    """The arguments that are no tensors, by the names of the schema; where a tensor is to lie is left out."""
    names = [argument.name for argument in schema.arguments]
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in named.items() if name not in _PLACEMENT and not _has_tensor(value)}


def variant_of(schema: Any, attributes: Mapping[str, Encoded]) -> str:
    """The attributes that choose another implementation; see `OperatorCall.variant`."""
    words = []
    for argument in schema.arguments:
        value = attributes.get(argument.name)
        default = argument.default_value if argument.has_default_value() else None
        if value is None or value == default:
            continue
        if isinstance(value, bool):
            words.append(argument.name if value else f"{argument.name}=false")
        elif isinstance(value, str):
            words.append(f"{argument.name}={value}")
        elif isinstance(value, float | int) and argument.has_default_value() and default is None:
            words.append(argument.name)
    return ",".join(sorted(words))


def _has_tensor(value: Encoded) -> bool:
    if isinstance(value, dict):
        return "tensor" in value
    return isinstance(value, list) and any(_has_tensor(item) for item in value)
