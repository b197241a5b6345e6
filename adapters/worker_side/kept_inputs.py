"""Whether an operator left its inputs as they were: a right result may have been written over them."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

import torch

Kept = List[Tuple[str, torch.Tensor, torch.Tensor]]
"""Argument, the tensor where the operator reads it, and its values before, on the host."""

_TRAINED = "running_mean"
"""Argument of operators that keep statistics in their inputs, which their schemas do not say."""


def kept_inputs(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kept:
    """The tensors that the operator must not change, as its schema says; none where they cannot be read."""
    schema = getattr(function, "_schema", None)
    if schema is None or any(argument.name == _TRAINED for argument in schema.arguments):
        return []
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, args))  # noqa: B905  # Python 3.9 has no strict
    given.update(kwargs)
    written = {
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    changed = {id(tensor) for name in written for tensor in _tensors(given.get(name))}
    try:
        return [
            (name, tensor, _values(tensor))
            for name, value in given.items()
            for tensor in _tensors(value)
            if id(tensor) not in changed
        ]
    except (RuntimeError, NotImplementedError):  # no copy back from the device: nothing can be told
        return []


def changed_inputs(kept: Kept) -> List[str]:
    """Arguments that hold other values now."""
    return [name for name, tensor, before in kept if not _same(_values(tensor), before)]


def _tensors(value: Any) -> List[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for one in value if isinstance(one, torch.Tensor)] if isinstance(value, (list, tuple)) else []


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _same(after: torch.Tensor, before: torch.Tensor) -> bool:
    """Byte by byte, so that NaN is the same as itself."""
    return torch.equal(*(one.reshape(-1).view(torch.uint8) for one in (after, before)))
