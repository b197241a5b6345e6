"""transformers' weight conversions as expressions: what each of them computes, written down instead of done.

The formulas follow the `convert` methods in `transformers/core_model_loading.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Parts = dict[str, list["Part"]]


@dataclass(frozen=True)
class Part:
    """A tensor that is not there yet.

    Attributes:
        expression: how it is made; see `WeightRecipe`.
        shape: what it will have.
        tensors: checkpoint tensors that it reads.
    """

    expression: Any
    shape: tuple[int, ...]
    tensors: tuple[str, ...]


class Unexpressible(Exception):
    """A conversion that expressions cannot state."""


@dataclass(frozen=True)
class Step:
    """One operation of a converter with what it is told beside its inputs.

    Attributes:
        operation: the `ConversionOps` object.
        sources: source patterns of the converter.
        targets: target patterns of the converter.
        parameter: full name of the (first) parameter that results.
        model: on the meta device.
    """

    operation: Any
    sources: Sequence[str]
    targets: Sequence[str]
    parameter: str
    model: Any


def convert(step: Step, inputs: Parts) -> Parts:
    """What the operation makes of its inputs, by pattern.

    Raises:
        Unexpressible: it is none of the known operations, or the inputs do not suit it.
    """
    name = type(step.operation).__name__
    if name not in _RULES:
        raise Unexpressible(f"conversion {name} of {step.parameter} is not one that can be followed")
    try:
        return _RULES[name](step, inputs)
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise Unexpressible(f"conversion {name} of {step.parameter} does not fit: {error}") from error


def joined(kind: str, parts: Sequence[Part], dim: int) -> Part:
    """The `stack` or `cat` of parts, its list shortened where it counts through names."""
    first = parts[0].shape
    if any(part.shape != first for part in parts) and kind == "stack":
        raise ValueError(f"parts of shapes {sorted({part.shape for part in parts})} cannot be stacked")
    shape = list(first)
    if kind == "stack":
        shape.insert(dim, len(parts))
    else:
        shape[dim] = sum(part.shape[dim] for part in parts)
    expressions = [part.expression for part in parts]
    listed = shortened(expressions) or expressions
    tensors = tuple(name for part in parts for name in part.tensors)
    return Part({kind: listed, "dim": dim}, tuple(shape), tensors)


def shortened(expressions: Sequence[Any]) -> dict[str, Any] | None:
    """`{"each": X, "from": a, "to": b}` where only a counting number in their names differs, else None."""
    if len(expressions) < 2:
        return None
    counted = _template(expressions[0], expressions[1])
    if counted is None:
        return None
    template, start = counted
    for index, expression in enumerate(expressions):
        if spelt(template, start + index) != expression:
            return None
    return {"each": template, "from": start, "to": start + len(expressions)}


def spelt(template: Any, number: int) -> Any:
    """The template with the number in place of `{}` in its tensor names."""
    if isinstance(template, dict):
        return {
            key: value.replace("{}", str(number)) if key == "tensor" else spelt(value, number)
            for key, value in template.items()
        }
    return template


def _template(first: Any, second: Any) -> tuple[Any, int] | None:
    if not (isinstance(first, dict) and isinstance(second, dict) and list(first) == list(second)):
        return None
    result: dict[str, Any] = {}
    numbers: set[int] = set()
    for key, value in first.items():
        if value == second[key]:
            result[key] = value
            continue
        inner = _name_template(value, second[key]) if key == "tensor" else _template(value, second[key])
        if inner is None:
            return None
        result[key], number = inner
        numbers.add(number)
    return (result, numbers.pop()) if len(numbers) == 1 else None


def _name_template(first: str, second: str) -> tuple[str, int] | None:
    left, right = first.split("."), second.split(".")
    places = [index for index, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]]
    if len(left) != len(right) or len(places) != 1 or "{}" in first or not left[places[0]].isdecimal():
        return None
    number = int(left[places[0]])
    left[places[0]] = "{}"
    return ".".join(left), number


def _only(inputs: Parts) -> Part:
    if len(inputs) != 1:
        raise ValueError(f"one input is needed, there are {len(inputs)}")
    return next(iter(inputs.values()))[0]


def _pieces(whole: Part, sizes: Sequence[int], dim: int) -> list[Part]:
    pieces, start = [], 0
    for size in sizes:
        expression = {"narrow": whole.expression, "dim": dim, "start": start, "length": size}
        shape = list(whole.shape)
        shape[dim] = size
        pieces.append(Part(expression, tuple(shape), whole.tensors))
        start += size
    return pieces


def _reshaped(part: Part, shape: Sequence[int]) -> Part:
    return Part({"reshape": part.expression, "shape": list(shape)}, tuple(shape), part.tensors)


def _transposed(part: Part, first: int, second: int) -> Part:
    shape = list(part.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return Part({"transpose": part.expression, "dims": [first, second]}, tuple(shape), part.tensors)


def _chunk(step: Step, inputs: Parts) -> Parts:
    whole = _only(inputs)
    names = step.operation.get_target_patterns(list(step.targets), config=step.model.config)
    dim = step.operation.dim
    size = -(-whole.shape[dim] // len(names))  # torch.chunk rounds up
    sizes = [max(0, min(size, whole.shape[dim] - start * size)) for start in range(len(names))]
    pieces = _pieces(whole, sizes, dim)
    return {name: [piece] for name, piece in zip(names, pieces, strict=True)}


def _split(step: Step, inputs: Parts) -> Parts:
    dim = step.operation.dim
    sizes = [
        step.model.get_parameter(step.parameter.replace(step.targets[0], target)).shape[dim]
        for target in step.targets
    ]
    pieces = _pieces(_only(inputs), sizes, dim)
    return {target: [piece] for target, piece in zip(step.targets, pieces, strict=True)}


def _concatenate(step: Step, inputs: Parts) -> Parts:
    parts = [part for source in step.sources for part in inputs.get(source, [])]
    return {step.operation.get_target_pattern(list(step.targets)): [joined("cat", parts, step.operation.dim)]}


def _merge(step: Step, inputs: Parts) -> Parts:
    operation, count = step.operation, len(inputs)
    return {
        operation.get_target_pattern(count, source, list(step.targets)): [
            joined("stack", parts, operation.dim)
        ]
        for source, parts in inputs.items()
    }


def _interleave(step: Step, inputs: Parts) -> Parts:
    part, dim = _only(inputs), step.operation.dim
    half = part.shape[dim] // 2
    inner = (2, half) if step.operation.inverse else (half, 2)
    split = _reshaped(part, (*part.shape[:dim], *inner, *part.shape[dim + 1 :]))
    return {step.targets[0]: [_reshaped(_transposed(split, dim, dim + 1), part.shape)]}


def _transpose(step: Step, inputs: Parts) -> Parts:
    operation, part = step.operation, _only(inputs)
    name = operation.get_target_pattern(inputs, list(step.sources), list(step.targets))
    wanted = tuple(step.model.get_parameter(step.parameter).shape) if operation.check_dims else None
    if part.shape == wanted:
        return {name: [part]}
    return {name: [_transposed(part, operation.dim0, operation.dim1)]}


def _conv3d_to_linear(step: Step, inputs: Parts) -> Parts:
    part = _only(inputs)
    name = type(step.operation)._get_target_pattern(inputs, list(step.sources), list(step.targets))
    rows = part.shape[0]
    columns = 1
    for size in part.shape[1:]:
        columns *= size
    return {name: [_reshaped(part, (rows, columns)) if len(part.shape) == 5 else part]}


def _permute_for_rope(step: Step, inputs: Parts) -> Parts:
    operation, config = step.operation, step.model.config
    if operation.subconfig_key is not None:
        config = getattr(config, operation.subconfig_key, config)
    heads = getattr(config, "num_attention_heads", 1)
    result: Parts = {}
    for source, parts in inputs.items():
        name = operation.get_target_pattern(source, list(step.sources), list(step.targets))
        chosen = operation.permute_layer_names is None or any(
            layer in source for layer in operation.permute_layer_names
        )
        result[name] = [_permuted(part, heads, operation.inverse) for part in parts] if chosen else parts
    return result


def _permuted(part: Part, heads: int, inverse: bool) -> Part:
    half = part.shape[0] // heads // 2
    inner = (2, half) if inverse else (half, 2)
    split = _reshaped(part, (heads, *inner, *part.shape[1:]))
    return _reshaped(_transposed(split, 1, 2), part.shape)


_RULES: Mapping[str, Callable[[Step, Parts], Parts]] = {
    "Chunk": _chunk,
    "Split": _split,
    "Concatenate": _concatenate,
    "MergeModulelist": _merge,
    "Interleave": _interleave,
    "Transpose": _transpose,
    "Conv3dToLinear": _conv3d_to_linear,
    "PermuteForRope": _permute_for_rope,
}
