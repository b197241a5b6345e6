"""An operator computed in another dtype: its floating arguments are cast, its results cast back."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping

from day0_worker.workarounds import Workaround

FLOATING = ("bf16", "fp16", "fp32")


class Cast(Workaround):
    """`cast:OPERATOR:DTYPE`; an operator in place writes its result into the argument that it changes."""

    name = "cast"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self.op, _, self.dtype = argument.rpartition(":")
        self.replaces = (self.op,)

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """See `Workaround`: floating arguments, all of another dtype."""
        floating = [dtype for dtype in call["dtypes"] if dtype in FLOATING]
        return call["op"] == self.op and bool(floating) and self.dtype not in floating

    def operators(self) -> Mapping[str, Callable[..., Any]]:
        """See `Workaround`."""
        return {self.op: self._computed}

    def _computed(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        from day0_worker.dtypes import torch_dtype
        from day0_worker.operators import resolve

        function, wide = resolve(self.op), torch_dtype(self.dtype)
        changed = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        floating = [tensor for tensor in _tensors([list(args), kwargs]) if tensor.is_floating_point()]
        narrow = floating[0].dtype if floating else wide
        result = function(*_cast(list(args), wide), **_cast(kwargs, wide))
        writes = function._schema.arguments and function._schema.arguments[0].alias_info is not None
        if writes and function._schema.arguments[0].alias_info.is_write and changed is not None:
            return changed.copy_(result)
        return _back(result, wide, narrow) if kwargs.get("dtype") is None else result


def _tensors(value: Any) -> List[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _cast(value: Any, dtype: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _cast(item, dtype) for key, item in value.items()}
    return type(value)(_cast(item, dtype) for item in value) if isinstance(value, (list, tuple)) else value


def _back(value: Any, wide: Any, narrow: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(narrow) if value.dtype == wide else value
    return tuple(_back(item, wide, narrow) for item in value) if isinstance(value, (list, tuple)) else value
