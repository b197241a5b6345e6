"""From config.json to a transformers model on the meta device; no network, no repository code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.dtypes import FROM_TORCH
from ..base.errors import SkeletonError, words_of

MAX_LAYERS = 4096
"""Building time and memory grow with the number of layers; no released model has a tenth of this."""

_STRIPPED = {
    "quantization_config", "auto_map", "attn_implementation", "_attn_implementation",
    "_attn_implementation_internal", "experts_implementation", "_experts_implementation",
    "_experts_implementation_internal", "compression_config", "_name_or_path",
}  # fmt: skip
"""Keys that name repository code, hub kernels or storage formats; none of them belongs to the structure."""


@dataclass(frozen=True)
class BuiltModel:
    """A model without weights.

    Attributes:
        model: on the meta device, in eval mode.
        architecture: its class.
        config: what it was built from, as JSON.
        dtype: short name of the release's own dtype.
    """

    model: Any
    architecture: str
    config: dict[str, Any]
    dtype: str


def build_meta_model(
    config: Mapping[str, Any], dtype: str | None = None, options: Mapping[str, str] | None = None
) -> BuiltModel:
    """Builds the model that the config names.

    Args:
        config: config.json as parsed.
        dtype: short name; None: the config's own, or bf16 where it says nothing.
        options: see `day0_worker.modules.build_model`.

    Raises:
        SkeletonError: E401 unknown model type, E402 it needs repository code, E403 it does not build.
    """
    from day0_worker.modules import build_model
    from day0_worker.stack import StackError

    architecture, plain = choose_architecture(config, stripped(config))
    dtype = dtype or declared_dtype(config)
    try:
        model = build_model(plain, architecture, dtype, options or {})
    except StackError as error:
        raise SkeletonError(str(error), code="E401", remedy="Install a newer transformers.") from error
    except Exception as error:  # a config is arbitrary input to third-party constructors
        text = words_of(error, 400)
        raise SkeletonError(
            f"config.json does not build {architecture}: {text}",
            code="E403",
            remedy="Compare the named value with the released config.json of this model type.",
        ) from error
    return BuiltModel(model, architecture, plain, dtype)


def stripped(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without quantisation, repository code and implementation choices, at any depth."""
    return {
        key: stripped(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in _STRIPPED
    }


def declared_dtype(config: Mapping[str, Any]) -> str:
    """Short name of the dtype that the config or its text part declares; bf16 where none is known."""
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping):
            name = str(part.get("dtype") or part.get("torch_dtype") or "").removeprefix("torch.")
            if name in FROM_TORCH and FROM_TORCH[name] in ("bf16", "fp16", "fp32", "fp64"):
                return FROM_TORCH[name]
    return "bf16"


def choose_architecture(config: Mapping[str, Any], plain: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The transformers class to build and the config for it.

    The class that the config names where transformers has it, else the type's own; the text part of a
    composite config where the class takes that and not the whole.

    Raises:
        SkeletonError: E401 or E402, there is none; E403, the config does not parse.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from day0_worker.modules import with_floats

    model_type = plain.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise _unknown_type(config, model_type, transformers.__version__)
    _check_layers(plain)
    try:
        parsed = CONFIG_MAPPING[model_type].from_dict(with_floats(plain))
    except Exception as error:  # a config is arbitrary input to third-party constructors
        text = words_of(error, 400)
        raise SkeletonError(
            f"config.json of type {model_type!r} does not parse: {text}", code="E403"
        ) from error
    for name in plain.get("architectures") or []:
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if found is not None and is_model and isinstance(parsed, found.config_class):
            return str(found.__name__), plain
    return _by_type(parsed, plain, transformers.__version__)


def _by_type(parsed: Any, plain: dict[str, Any], version: str) -> tuple[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto

    for mapping in ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_MAPPING"):
        classes = getattr(modeling_auto, mapping)
        if type(parsed) not in classes:
            continue
        found, text = classes[type(parsed)], parsed.get_text_config(decoder=True)
        if isinstance(parsed, found.config_class) or text is parsed:
            return str(found.__name__), plain
        part = next((value for key, value in plain.items() if getattr(parsed, key, None) is text), None)
        if isinstance(text, found.config_class) and isinstance(part, dict):
            return str(found.__name__), part | {"model_type": text.model_type}
    raise SkeletonError(
        f"transformers {version} has a config but no model for the type {plain['model_type']!r}",
        code="E401",
        remedy="Install a newer transformers.",
    )


def _unknown_type(config: Mapping[str, Any], model_type: Any, version: str) -> SkeletonError:
    if not config:
        return SkeletonError(
            "there is no config to build a model from: it is empty, or the release's files cannot be read",
            code="E401",
            remedy="See the inventory's findings; a gated release needs its terms accepted and a token.",
        )
    auto_map = config.get("auto_map")
    if isinstance(auto_map, Mapping) and auto_map:
        return SkeletonError(
            f"model type {model_type!r} is not known to transformers {version}; only the repository's code "
            f"({', '.join(sorted(str(value) for value in auto_map.values()))[:200]}) can build it",
            code="E402",
            remedy="Install a transformers that knows it, or have the code reviewed before it is run.",
        )
    return SkeletonError(
        f"model type {model_type!r} is not known to transformers {version}",
        code="E401",
        remedy="Install a newer transformers, or correct model_type in config.json.",
    )


def _check_layers(plain: Mapping[str, Any]) -> None:
    for part in (plain, *[value for value in plain.values() if isinstance(value, Mapping)]):
        for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"):
            count = part.get(key)
            if isinstance(count, int) and count > MAX_LAYERS:
                raise SkeletonError(
                    f"config.json asks for {key}={count}, more than {MAX_LAYERS}", code="E403"
                )
