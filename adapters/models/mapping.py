"""How checkpoint tensors map onto parameters, by transformers' own renaming and conversion rules.

Follows `convert_and_load_state_dict_in_model` of `transformers/core_model_loading.py`, with expressions in
place of tensors; quantised weights become dequantised leaves before any rule sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.checkpoint import TensorInfo
from ..base.skeleton import WeightRecipe
from .conversions import Part, Parts, Step, Unexpressible, convert
from .quantisation_statement import quantisation
from .quantised_leaves import Leaf, Unreadable, leaves_of

_Inputs = dict[str, list[Leaf]]


@dataclass
class WeightMap:
    """The outcome for a whole model.

    Attributes:
        recipes: parameter or saved buffer -> how it is made; tied ones have the recipe of what they share.
        tied: parameter -> parameter whose tensor it shares because the checkpoint has none for it.
        missing: parameters for which there is no recipe.
        reasons: parameter -> why its tensors cannot be used, where it has some.
        unused: tensors that no parameter takes.
    """

    recipes: dict[str, WeightRecipe] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def map_weights(model: Any, tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> WeightMap:
    """Finds for every parameter and saved buffer how the checkpoint makes it.

    Args:
        model: transformers model on the meta device.
        tensors: of the checkpoint.
        config: config.json as parsed, with its quantisation.
    """
    wanted: dict[str, Any] = model.state_dict()
    result = WeightMap()
    leaves = leaves_of(tensors, config)
    for first, (converter, inputs) in _collect(model, wanted, leaves, result).items():
        _realise(model, wanted, first, converter, inputs, result)
    _tie(model, wanted, result)
    result.missing = [name for name in wanted if name not in result.recipes]
    result.unused.sort()
    method = quantisation(config).get("quant_method")
    if result.missing and result.unused and method:
        for name in result.missing:
            result.reasons.setdefault(
                name, f"its tensors are stored as {method}, which cannot be dequantised"
            )
    return result


def _collect(
    model: Any, wanted: Mapping[str, Any], leaves: Mapping[str, Leaf], result: WeightMap
) -> dict[str, tuple[Any, _Inputs]]:
    """Parameter -> the converter that makes it (None: a plain copy) and its inputs by source pattern."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    prefix = model.base_model_prefix
    collected: dict[str, tuple[Any, _Inputs]] = {}
    for name in sorted(leaves, key=dot_natural_key):
        renamed, pattern = rename_source_key(name, renamings, converters, prefix, wanted)
        if renamed not in wanted and name in wanted:
            renamed, pattern = rename_source_key(
                name, [], [], base_model_prefix=prefix, meta_state_dict=wanted
            )
        if renamed not in wanted:
            result.unused += leaves[name].tensors
            continue
        converter = by_pattern[pattern] if pattern is not None else None
        _, inputs = collected.setdefault(renamed, (converter, {}))
        inputs.setdefault(pattern or name, []).append(leaves[name])
    return collected


def _realise(
    model: Any, wanted: Mapping[str, Any], first: str, converter: Any, inputs: _Inputs, result: WeightMap
) -> None:
    try:
        readable = _readable(inputs)
        if converter is None:
            parts = {first: next(iter(readable.values()))}
        else:
            parts = _converted(model, first, converter, readable)
    except Unexpressible as error:
        names = [name for values in inputs.values() for part in values for name in part.tensors]
        result.reasons[first] = str(error)
        result.unused += names
        return
    for name, values in parts.items():
        part = values[0]
        if name not in wanted:
            result.unused += part.tensors
        elif part.shape != tuple(wanted[name].shape):
            result.reasons[name] = (
                f"the checkpoint gives shape {list(part.shape)}, the model needs {list(wanted[name].shape)}"
            )
        else:
            result.recipes[name] = WeightRecipe(
                expression=part.expression, tensors=list(part.tensors), shape=list(part.shape)
            )


def _readable(inputs: _Inputs) -> Parts:
    """The inputs, where all of them can be read."""
    for leaf in (leaf for leaves in inputs.values() for leaf in leaves):
        if isinstance(leaf, Unreadable):
            raise Unexpressible(leaf.reason)
    return {
        pattern: [leaf for leaf in leaves if isinstance(leaf, Part)] for pattern, leaves in inputs.items()
    }


def _converted(model: Any, first: str, converter: Any, inputs: Parts) -> Parts:
    """Runs the converter's operations in order and spells its target patterns out to full names."""
    parts = inputs
    for operation in converter.operations:
        step = Step(operation, converter.source_patterns, converter.target_patterns, first, model)
        parts = convert(step, parts)
    whole = first.replace("*.", "0.")
    found = next((pattern for pattern in parts if pattern in whole), None)
    if found is None:
        return parts
    before, _, after = whole.partition(found)
    return {before + pattern + after: values for pattern, values in parts.items()}


def _tie(model: Any, wanted: Mapping[str, Any], result: WeightMap) -> None:
    """Gives tied parameters the recipe of the one that the checkpoint has, in whichever direction."""
    pairs = [pair for pair in model.all_tied_weights_keys.items() if all(name in wanted for name in pair)]
    for _ in range(2):  # a source may itself be made from another of its targets
        for target, source in pairs:
            for lacking, having in ((target, source), (source, target)):
                if lacking not in result.recipes and having in result.recipes:
                    result.recipes[lacking] = result.recipes[having]
                    result.tied[lacking] = having
