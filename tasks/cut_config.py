"""The config of a model with fewer layers: the first of each kind, described so that each keeps its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_LEFT_OUT = {"auto_map"}
"""Names repository code, which is not copied."""
_COMPUTED_LISTS = ("layer_types", "mlp_layer_types", "layers_block_type")
"""Lists, one word a layer, that transformers derives from periods and offsets where config.json does not
spell them out; once layers are left out, only the list still says what each is."""


def text_part(config: Mapping[str, Any]) -> str:
    """Key of the part that describes the decoder layers; empty where it is the config itself."""
    part = config.get("text_config")
    return "text_config" if isinstance(part, Mapping) and _count_key(part) else ""


def layer_count(config: Mapping[str, Any]) -> int:
    """Number of decoder layers.

    Raises:
        KeyError: the config does not say.
    """
    part = _part(config)
    key = _count_key(part)
    if key is None:
        raise KeyError(" or ".join(_COUNTS))
    return int(part[key])


def cut_config(
    config: Mapping[str, Any], kept: Sequence[int], *, moe: Sequence[int], spelt: Mapping[str, Any]
) -> dict[str, Any]:
    """The config with only the layers `kept`, renumbered from 0.

    Args:
        config: config.json as parsed.
        kept: original indices, ascending.
        moe: those of them with experts.
        spelt: the same part of the config as transformers completes it; lists that config.json leaves to be
            computed are taken from it.
    """
    name = text_part(config)
    part = dict(config[name] if name else config)
    count = layer_count(config)
    for key in _COMPUTED_LISTS:
        value = spelt.get(key)
        if part.get(key) is None and isinstance(value, list | tuple) and len(value) == count:
            part[key] = list(value)
    changed = {key: _cut_value(key, value, kept, count) for key, value in part.items()}
    _renumber_experts(changed, part, kept, moe)
    for key in _COUNTS:
        if key in part:
            changed[key] = len(kept)
    if not name:
        return {key: value for key, value in changed.items() if key not in _LEFT_OUT}
    whole = {key: value for key, value in config.items() if key not in _LEFT_OUT}
    return {**whole, name: changed}


def changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs, as `key: old -> new`, sorted; long values shortened."""
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += changes(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return found


def _part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    name = text_part(config)
    part: Mapping[str, Any] = config[name] if name else config
    return part


def _count_key(part: Mapping[str, Any]) -> str | None:
    return next((key for key in _COUNTS if type(part.get(key)) is int and part[key] > 0), None)


def _cut_value(key: str, value: Any, kept: Sequence[int], count: int) -> Any:
    """A list with one entry a layer loses the entries left out; a list of layer numbers is renumbered."""
    if not isinstance(value, list):
        return value
    if len(value) == count:
        return [value[index] for index in kept]
    if "layer" in key and value and all(type(item) is int and 0 <= item < count for item in value):
        return [new for new, old in enumerate(kept) if old in value]
    return value


def _renumber_experts(
    changed: dict[str, Any], part: Mapping[str, Any], kept: Sequence[int], moe: Sequence[int]
) -> None:
    """Rules by which families say which layers have experts, each rewritten for the layers kept."""
    dense_first = part.get("first_k_dense_replace")
    if type(dense_first) is int:
        changed["first_k_dense_replace"] = sum(1 for index in kept if index < dense_first)
    if type(part.get("decoder_sparse_step")) is int and moe:
        changed["decoder_sparse_step"] = 1
        changed["mlp_only_layers"] = [new for new, old in enumerate(kept) if old not in moe]
    if type(part.get("interleave_moe_layer_step")) is int:
        changed["moe_layers"] = [new for new, old in enumerate(kept) if old in moe]
    if part.get("num_nextn_predict_layers"):
        changed["num_nextn_predict_layers"] = 0


def _short(value: Any) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
