"""Arguments and results of calls as a JSON tree plus its tensors by name.

| marked object | stands for |
|---|---|
| `{"$tensor": NAME}` | a tensor; the same tensor met twice has one name |
| `{"$tuple": [...]}` | a tuple (a list is a list) |
| `{"$dict": {...}}` | a dict with string keys |
| `{"$dtype": "bf16"}` | a dtype |
| `{"$float": "NaN"}` | a float that JSON lacks: `NaN`, `Infinity`, `-Infinity` |
| `{"$state": true}` | the cache object, which lives where the node runs |
| `{"$output": {...}}` | a model output: an ordered dict that is also read by attribute or index |

Null, booleans, numbers and strings stand for themselves.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from day0_worker.dtypes import SHORT_NAMES, torch_dtype

if TYPE_CHECKING:
    import torch

_MAX_DEPTH = 64
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _State:
    def __repr__(self) -> str:
        return "STATE"


STATE = _State()
"""Stands for the cache in decoded arguments until the one who runs the node puts the real one there."""


class TreeError(TypeError):
    """A value cannot cross between processes; names its type and where it stands."""


class Output(OrderedDict):  # type: ignore[type-arg]  # a type argument here fails on Python 3.9
    """A model output as decoded: by key, by attribute, by index over the values that are there."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> Tuple[Any, ...]:
        """All values in order."""
        return tuple(self.values())


def encode(value: Any) -> Tuple[Any, Dict[str, "torch.Tensor"]]:
    """One value as a tree and its tensors.

    Returns:
        The tree and tensor name -> tensor, in order of appearance.

    Raises:
        TreeError: something in it is of a type that does not cross.
    """
    encoder = _Encoder()
    return encoder.tree(value, "value", 0), encoder.tensors


def encode_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Tuple[Dict[str, Any], Dict[str, "torch.Tensor"]]:
    """The arguments of a call as `{"args": [...], "kwargs": {...}}` and their tensors.

    Raises:
        TreeError: something in them is of a type that does not cross.
    """
    encoder = _Encoder()
    positional = [encoder.tree(value, f"args[{index}]", 0) for index, value in enumerate(args)]
    named = {name: encoder.tree(value, name, 0) for name, value in kwargs.items()}
    return {"args": positional, "kwargs": named}, encoder.tensors


def decode(tree: Any, tensors: Mapping[str, "torch.Tensor"], state: Any = STATE) -> Any:
    """Inverse of `encode`; `state` takes the place of `{"$state": true}`.

    Raises:
        TreeError: the tree is malformed or names a tensor that is not there.
    """
    return _decode(tree, tensors, state, 0)


def decode_arguments(
    tree: Any, tensors: Mapping[str, "torch.Tensor"], state: Any = STATE
) -> Tuple[List[Any], Dict[str, Any]]:
    """Inverse of `encode_arguments`.

    Raises:
        TreeError: the tree is malformed or names a tensor that is not there.
    """
    if not isinstance(tree, dict) or set(tree) != {"args", "kwargs"}:
        raise TreeError("the tree of a call needs exactly the keys args and kwargs")
    args = [_decode(value, tensors, state, 0) for value in tree["args"]]
    return args, {name: _decode(value, tensors, state, 0) for name, value in tree["kwargs"].items()}


def has_state(tree: Any) -> bool:
    """Whether the tree asks for a cache."""
    if isinstance(tree, dict):
        return tree == {"$state": True} or any(has_state(value) for value in tree.values())
    return isinstance(tree, list) and any(has_state(value) for value in tree)


def with_state(value: Any, cache: Any) -> Any:
    """Decoded arguments with the cache in place of every `STATE`."""
    if value is STATE:
        return cache
    if isinstance(value, Output):
        return Output((key, with_state(item, cache)) for key, item in value.items())
    if isinstance(value, dict):
        return {key: with_state(item, cache) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(with_state(item, cache) for item in value)
    return value


def is_cache(value: Any) -> bool:
    """Whether the value is a cache of transformers, whatever its version."""
    return any(
        base.__name__.endswith("Cache") and base.__module__.startswith("transformers.")
        for base in type(value).__mro__
    )


class _Encoder:
    def __init__(self) -> None:
        self.tensors: Dict[str, torch.Tensor] = {}
        self._names: Dict[Any, str] = {}

    def tree(self, value: Any, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise TreeError(f"{path} is nested deeper than {_MAX_DEPTH} levels")
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)):
            return _number(value, path)
        if value is STATE or is_cache(value):
            return {"$state": True}
        if isinstance(value, dict):
            return self._dict(value, path, depth)
        if isinstance(value, (list, tuple)):
            items = [self.tree(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        return self._torch(value, path)

    def _dict(self, value: Dict[Any, Any], path: str, depth: int) -> Any:
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TreeError(
                f"{path} has the key {wrong[0]!r} of type {type(wrong[0]).__name__}, not a string"
            )
        items = {key: self.tree(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        return {"$output" if _is_output(value) else "$dict": items}

    def _torch(self, value: Any, path: str) -> Any:
        import torch

        if isinstance(value, torch.dtype) and str(value) in SHORT_NAMES:
            return {"$dtype": SHORT_NAMES[str(value)]}
        if not isinstance(value, torch.Tensor):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise TreeError(f"{path} is a {kind}, which cannot cross between processes")
        key = _tensor_key(value)
        if key not in self._names:
            name = f"t{len(self.tensors)}"
            self._names[key] = name
            self.tensors[name] = value.detach()
        return {"$tensor": self._names[key]}


def _number(value: Any, path: str) -> Any:
    if type(value) not in (int, float):
        raise TreeError(f"{path} is a {type(value).__qualname__}, which cannot cross between processes")
    if isinstance(value, int) or math.isfinite(value):
        return value
    return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _is_output(value: Any) -> bool:
    return isinstance(value, Output) or any(base.__name__ == "ModelOutput" for base in type(value).__mro__)


def storage_of(tensor: "torch.Tensor") -> int:
    """Equal for tensors over one storage, while they live; a tensor that has none stands for itself.

    Not by the address of the data: it is 0, or refused, on devices whose tensors are handles.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except RuntimeError:  # NotImplementedError among them
        return id(tensor)


def _tensor_key(tensor: "torch.Tensor") -> Any:
    """Equal for two tensors that show the same elements of the same storage."""
    if tensor.device.type == "meta" or not tensor.numel():
        return id(tensor)
    place = (storage_of(tensor), tensor.storage_offset(), tensor.dtype)
    return (*place, tuple(tensor.shape), tensor.stride())


def _decode(tree: Any, tensors: Mapping[str, "torch.Tensor"], state: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TreeError(f"the tree is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(tree, list):
        return [_decode(item, tensors, state, depth + 1) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        raise TreeError(f"an object of the tree must have one key, this has {sorted(tree)}")
    mark, content = next(iter(tree.items()))
    if mark == "$tensor":
        if content not in tensors:
            raise TreeError(f"the tree names the tensor {content!r}, which is not there")
        return tensors[content]
    if mark == "$tuple":
        return tuple(_decode(item, tensors, state, depth + 1) for item in content)
    if mark in ("$dict", "$output"):
        items = {key: _decode(item, tensors, state, depth + 1) for key, item in content.items()}
        return Output(items) if mark == "$output" else items
    return _decode_constant(mark, content, state)


def _decode_constant(mark: str, content: Any, state: Optional[Any]) -> Any:
    if mark == "$dtype":
        return torch_dtype(content)
    if mark == "$float" and content in _FLOATS:
        return _FLOATS[content]
    if mark == "$state":
        return state
    raise TreeError(f"the tree holds the unknown object {mark!r}")
