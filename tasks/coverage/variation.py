"""A call with one attribute changed: what a target makes of it tells whether it heeds the attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.models.encoding import attributes_of, variant_of
from day0_worker.operators import resolve

from .shrink import runs_on_meta

_WORDS = {
    "approximate": ("none", "tanh"),
    "rounding_mode": ("trunc", "floor"),
    "reduce": ("sum", "amax", "amin", "prod", "mean"),
    "side": ("left", "right"),
    "ord": ("fro", "nuc"),
}
"""Words that attributes of torch's schemas take."""

_PLACES = frozenset({"dim", "dim0", "dim1", "axis"})
_LEFT = frozenset(
    {"dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "out",
     "implicit", "copy", "size", "output_size", "dropout_p", "unsafe", "accumulate", "storage_offset",
     "stride", "split_size", "shape", "sparse_grad", "validate_indices", "scale_grad_by_freq", "sparse",
     "return_debug_mask"}
)  # fmt: skip
"""Arguments that say where a result lies, how large it is, how it is trained, or that make it random."""


@dataclass(frozen=True)
class Varied:
    """A call that differs in one attribute.

    Attributes:
        attribute: by the schema's name.
        value: that it has now, encoded.
        call: with that value.
    """

    attribute: str
    value: Any
    call: OperatorCall


def varied(call: OperatorCall) -> list[Varied]:
    """The call once for each of its attributes, with that one changed.

    What torch itself refuses on the meta device is left out, where it takes the unchanged call: no target
    has to run it. CPU kernels take more, so that running there does not make a call legal.
    """
    schema = resolve(call.op)._schema
    given = _by_name(schema, call)
    found = []
    for argument in schema.arguments:
        if argument.name in _LEFT or "Tensor" in str(argument.type):
            continue
        default = argument.default_value if argument.has_default_value() else None
        before = given.get(argument.name, default)
        for value in _changed(argument.name, str(argument.type), before, call):
            found.append(Varied(argument.name, value, _with(call, schema, argument.name, value)))
    return [one for one in found if runs_on_meta(one.call)] if found and runs_on_meta(call) else found


def _by_name(schema: Any, call: OperatorCall) -> Mapping[str, Any]:
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def _changed(name: str, kind: str, before: Any, call: OperatorCall) -> Iterator[Any]:
    if isinstance(before, bool):
        yield not before
    elif isinstance(before, str):
        yield from [word for word in _WORDS.get(name, ()) if word != before][:1]
    elif isinstance(before, float):
        yield before * 1.5 + 0.25
    elif isinstance(before, int):
        yield from _other_number(name, before, call)
    elif before is None and "float" in kind:
        yield 0.75
    elif before is None and "bool" in kind:
        yield True
    elif name in _PLACES and isinstance(before, Sequence) and len(before) == 1:
        yield from ([place] for place in _other_number(name, before[0], call))


def _other_number(name: str, before: int, call: OperatorCall) -> Iterator[int]:
    rank = max((len(shape) for shape in call.shapes), default=0)
    if name not in _PLACES:
        yield before + 1
        # A count that may be no larger than a dimension, such as the k of `topk`.
        yield before - 1
    elif rank > 1:
        yield (before + 1) % rank


def _with(call: OperatorCall, schema: Any, name: str, value: Any) -> OperatorCall:
    names = [argument.name for argument in schema.arguments]
    place = names.index(name)
    args, kwargs = list(call.args), dict(call.kwargs)
    if place < len(args):
        args[place] = value
    else:
        kwargs[name] = value
    attributes = attributes_of(schema, args, kwargs)
    return call.model_copy(
        update={
            "args": args,
            "kwargs": kwargs,
            "attributes": attributes,
            "variant": variant_of(schema, attributes),
        }
    )
