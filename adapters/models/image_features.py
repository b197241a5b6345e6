"""The function of a model that runs its vision tower and projector, and what of its answer the text takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .image_inputs import PIXELS_NAMES

FUNCTION = "get_image_features"
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


def function_at(model: Any, path: str) -> Callable[..., Any]:
    """The function at a path, e.g. `model.get_image_features`."""
    owner, _, name = path.rpartition(".")
    found: Callable[..., Any] = getattr(model.get_submodule(owner), name)
    return found


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
