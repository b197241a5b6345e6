"""The function of a model that runs its vision tower and projector, and what of its answer the text takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from .image_inputs import PIXELS_NAMES

FUNCTION = "get_image_features"
_PROJECTORS = ("multi_modal_projector", "visual_projection")
"""Modules that some forwards call on what comes out of the tower, and no function besides."""
_THEN = " > "
_TEXT = frozenset({"input_ids", "inputs_embeds"})
_FURTHER = ("deepstack_features",)
"""Features beside the pooled ones that go into layers of the text."""


def features_path(model: Any) -> str:
    """Path of the outermost function that makes features of pixels, e.g. `model.get_image_features`.

    Returns:
        Empty where the model has none that names the pixels it takes.
    """
    for name, module in model.named_modules():
        found = getattr(module, FUNCTION, None)
        if callable(found) and any(word in inspect.signature(found).parameters for word in PIXELS_NAMES):
            return f"{name}.{FUNCTION}" if name else FUNCTION
    return ""


def tower_path(model: Any) -> str:
    """Path of the forward of the outermost module that takes pixels and no text; empty where there is none.

    It stands for the features where no function makes them; the projector is then not among what it runs.
    """
    for name, module in model.named_modules():
        taken = inspect.signature(module.forward).parameters
        if name and any(word in taken for word in PIXELS_NAMES) and not _TEXT & set(taken):
            return f"{name}.forward"
    return ""


def projectors_of(model: Any) -> list[str]:
    """Paths of modules that bear a projector's name, in order."""
    return [name for name, _ in model.named_modules() if name.rpartition(".")[2] in _PROJECTORS]


def followed_by(path: str, projector: str) -> str:
    """Path of the function at `path` followed by a module on the features that it makes."""
    return f"{path}{_THEN}{projector}"


def function_at(model: Any, path: str) -> Callable[..., Any]:
    """The function at a path, e.g. `model.get_image_features`, or at one that `followed_by` made."""
    first, _, projector = path.partition(_THEN)
    owner, _, name = first.rpartition(".")
    found: Callable[..., Any] = getattr(model.get_submodule(owner), name)
    if not projector:
        return found
    last = model.get_submodule(projector)

    @functools.wraps(found)
    def projected(**inputs: Any) -> Any:
        return [last(tensor) for tensor in feature_tensors(found(**inputs))]

    return projected


def feature_tensors(output: Any) -> list[torch.Tensor]:
    """The features that the text takes, in order: those in place of tokens, then those for its layers."""
    pooled = getattr(output, "pooler_output", None)
    further = [getattr(output, name, None) for name in _FURTHER]
    return _tensors([output if pooled is None else pooled, *further])


def token_count(output: Any) -> int:
    """Rows of the features that take the place of tokens."""
    pooled = getattr(output, "pooler_output", None)
    return sum(
        tensor.numel() // tensor.shape[-1]
        for tensor in _tensors(output if pooled is None else pooled)
        if tensor.dim() and tensor.shape[-1]
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    last = getattr(value, "last_hidden_state", None)
    return [] if last is None else [last]
