"""One arm's inputs in the dtypes of another arm."""

from __future__ import annotations

from typing import Any

from ..base.target import Call


def cast_like(call: Call, like: Call) -> Call:
    """The call with each floating tensor in the dtype which its counterpart in `like` has.

    A model in bf16 does not hold every tensor in bf16, so the counterpart says which. Masks are taken from
    `like`, since the lowest number of one dtype is not that of another.

    Args:
        call: whose values are wanted.
        like: the same call as another arm made it; the trees must agree in what they hold.
    """
    wanted: dict[str, Any] = {}
    _pair(call.tree, like.tree, "", call, like, wanted)
    return Call(call.tree, {name: wanted.get(name, tensor) for name, tensor in call.tensors.items()})


def _pair(ours: Any, theirs: Any, path: str, call: Call, like: Call, wanted: dict[str, Any]) -> None:
    if isinstance(ours, list) and isinstance(theirs, list):
        for one, other in zip(ours, theirs, strict=False):
            _pair(one, other, path, call, like, wanted)
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        if "$tensor" in ours and "$tensor" in theirs:
            mine, model = call.tensors[ours["$tensor"]], like.tensors[theirs["$tensor"]]
            if "mask" in path and model.shape == mine.shape:
                wanted[ours["$tensor"]] = model
            elif mine.is_floating_point() and model.is_floating_point():
                wanted[ours["$tensor"]] = mine.to(model.dtype)
            return
        for key in ours.keys() & theirs.keys():
            _pair(ours[key], theirs[key], f"{path}.{key}", call, like, wanted)
