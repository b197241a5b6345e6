"""Single operators: from their name and encoded arguments to a call; the same code in parent and worker."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import torch

from day0_worker.dtypes import torch_dtype
from day0_worker.stack import StackError

_MEMORY_FORMATS = {
    "contiguous": torch.contiguous_format,
    "preserve": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
_COMPLEX = {"complex64": torch.complex64, "complex128": torch.complex128, "complex32": torch.complex32}


def resolve(op: str) -> Any:
    """The overload of a name such as `aten.mm.default`.

    Raises:
        StackError: `missing_operator`, this torch has none of that name.
    """
    parts = op.split(".")
    if len(parts) != 3:
        raise StackError(f"{op} is not the name of a torch operator", "missing_operator")
    found: Any = torch.ops
    try:
        for part in parts:
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        raise StackError(f"torch {torch.__version__} has no operator {op}", "missing_operator") from None
    return found


def call_dtype(name: str) -> torch.dtype:
    """The dtype of a short name or of torch's own name.

    Raises:
        ValueError: neither.
    """
    return _COMPLEX[name] if name in _COMPLEX else torch_dtype(name)


def decode_call(call: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> Tuple[List[Any], Dict[str, Any]]:
    """Arguments of an encoded call with the given tensors in the places of their `alias` numbers.

    A tensor comes back in the strides it was captured with; `{"device": "target"}` becomes the CPU, which a
    stack replaces by its own device.

    Args:
        call: an `OperatorCall` as JSON.
        tensors: one for each alias, of the encoded shape and dtype, in any strides.

    Raises:
        StackError: the JSON holds something unknown, or a tensor does not fit it.
    """
    decoder = _Decoder(tensors)
    args = [decoder.value(arg) for arg in call.get("args", ())]
    kwargs = {name: decoder.value(value) for name, value in call.get("kwargs", {}).items()}
    return args, kwargs


class _Decoder:
    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._placed: Dict[int, torch.Tensor] = {}

    def value(self, encoded: Any) -> Any:
        if isinstance(encoded, (list, tuple)):
            return [self.value(item) for item in encoded]
        if not isinstance(encoded, dict):
            return encoded
        if len(encoded) != 1:
            raise StackError(f"an encoded argument has the keys {sorted(encoded)} where one was expected")
        mark, content = next(iter(encoded.items()))
        if mark == "tensor":
            return self._tensor(content)
        if mark not in _DECODERS:
            raise StackError(f"an encoded argument is of the unknown kind {mark!r}")
        return _DECODERS[mark](content)

    def _tensor(self, facts: Mapping[str, Any]) -> torch.Tensor:
        alias = facts["alias"]
        if alias in self._placed:
            return self._placed[alias]
        if not 0 <= alias < len(self._tensors):
            raise StackError(f"tensor {alias} of the call was not sent, only {len(self._tensors)} were")
        tensor = self._tensors[alias]
        if list(tensor.shape) != list(facts["shape"]):
            raise StackError(f"tensor {alias} has the shape {list(tensor.shape)}, the call {facts['shape']}")
        self._placed[alias] = with_strides(tensor, facts["stride"])
        return self._placed[alias]


def _device(name: str) -> torch.device:
    return torch.device("cpu" if name == "target" else name)


_DECODERS: Dict[str, Callable[[Any], Any]] = {
    "dtype": call_dtype,
    "device": _device,
    "memory_format": lambda name: _MEMORY_FORMATS[name],
    "layout": lambda name: getattr(torch, name),
    "float": float,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
}


def with_strides(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The same values laid out in other strides; along a stride of 0 the first value is taken for all."""
    if list(tensor.stride()) == list(stride) or tensor.numel() == 0:
        return tensor
    source = tensor
    for dim, step in enumerate(stride):
        if step == 0 and source.shape[dim] > 1:
            source = source.narrow(dim, 0, 1)
    shape = list(source.shape)
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=False))
    # A slice of a larger tensor: its gaps stay unwritten, as no operator reads them.
    if extent > 8 * tensor.numel() + 1024:
        return tensor
    laid = torch.empty(extent, dtype=tensor.dtype, device=tensor.device).as_strided(shape, list(stride))
    laid.copy_(source)
    return laid.expand(tensor.shape) if shape != list(tensor.shape) else laid
