"""How checkpoint tensors map onto parameters, by transformers' own renaming and conversion rules.

Follows `convert_and_load_state_dict_in_model` of `transformers/core_model_loading.py`, with expressions in
place of tensors; block-scaled fp8 weights become dequantised leaves before any rule sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.checkpoint import TensorInfo
from ..base.skeleton import WeightRecipe
from .conversions import Part, Parts, Step, Unexpressible, convert

_SCALE_SUFFIX = "_scale_inv"


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
    leaves = _leaves(tensors, config, result)
    for first, (converter, inputs) in _collect(model, wanted, leaves, result).items():
        _realise(model, wanted, first, converter, inputs, result)
    _tie(model, wanted, result)
    result.missing = [name for name in wanted if name not in result.recipes]
    result.unused.sort()
    method = _quantisation(config).get("quant_method")
    if result.missing and result.unused and method:
        for name in result.missing:
            result.reasons.setdefault(
                name, f"its tensors are stored as {method}, which cannot be dequantised"
            )
    return result


def _leaves(
    tensors: Mapping[str, TensorInfo], config: Mapping[str, Any], result: WeightMap
) -> dict[str, Part]:
    """A leaf for each tensor; a weight and its block scales are one leaf."""
    block = _pair(_quantisation(config).get("weight_block_size"))
    leaves: dict[str, Part] = {}
    for name, info in tensors.items():
        scale = tensors.get(name + _SCALE_SUFFIX)
        weight = tensors.get(name.removesuffix(_SCALE_SUFFIX)) if name.endswith(_SCALE_SUFFIX) else None
        if weight is not None:
            continue
        shape = tuple(info.shape)
        if scale is None:
            leaves[name] = Part({"tensor": name}, shape, (name,))
        elif info.dtype == "fp8_e4m3" and block is not None and len(shape) == 2:
            expression = {
                "dequantize": "fp8_block",
                "weight": {"tensor": name},
                "scale": {"tensor": scale.name},
                "block": block,
            }
            leaves[name] = Part(expression, shape, (name, scale.name))
        else:
            result.reasons[name] = f"{info.dtype} weights with scales of blocks {block} cannot be dequantised"
            result.unused += [name, scale.name]
    return leaves


def _quantisation(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in (config, config.get("text_config"), config.get("language_config")):
        found = part.get("quantization_config") if isinstance(part, Mapping) else None
        if isinstance(found, Mapping):
            return found
    return {}


def _pair(block: Any) -> list[int] | None:
    """Rows and columns of a block, or None where the config says something else."""
    right = isinstance(block, Sequence) and len(block) == 2
    return list(block) if right and all(type(size) is int and size > 0 for size in block) else None


def _collect(
    model: Any, wanted: Mapping[str, Any], leaves: Mapping[str, Part], result: WeightMap
) -> dict[str, tuple[Any, Parts]]:
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
    collected: dict[str, tuple[Any, Parts]] = {}
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
    model: Any, wanted: Mapping[str, Any], first: str, converter: Any, inputs: Parts, result: WeightMap
) -> None:
    if converter is None:
        parts = {first: next(iter(inputs.values()))}
    else:
        try:
            parts = _converted(model, first, converter, inputs)
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
