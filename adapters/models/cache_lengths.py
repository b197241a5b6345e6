"""A cache that knows how long its sequence is and holds nothing: what the glue of a decode step reads."""

from __future__ import annotations

from typing import Any

import torch

from day0_worker.modules import new_cache

from ..base.errors import SkeletonError, words_of


def cache_of_length(model: Any, batch: int, length: int) -> Any:
    """An empty cache of the model's family that says it holds `length` tokens of `batch` sequences.

    The forward between nodes asks a cache for lengths and whether states are there; masks and positions
    follow from these. Keys and values are on the meta device, of one head of width one.

    Args:
        model: transformers model, on whatever device.
        batch: number of sequences.
        length: tokens of each so far.

    Raises:
        SkeletonError: E411, the family keeps its state in a way that cannot be told this.
    """
    cache: Any = new_cache(model)
    empty = torch.empty((batch, 1, length, 1), device="meta")
    try:
        for index in range(_layers(model, cache)):
            layer: Any = cache.layers[index] if index < len(cache.layers) else None
            if layer is None or hasattr(layer, "get_mask_sizes"):
                cache.update(empty, empty, index)
            states = getattr(layer, "has_previous_state", None)
            if isinstance(states, dict):
                layer.has_previous_state = dict.fromkeys(states, True)
    except Exception as error:  # a family's own cache class may refuse for reasons of its own
        raise SkeletonError(
            f"the cache of {type(model).__name__} cannot be told its length: {words_of(error, 300)}",
            code="E411",
        ) from error
    return cache


def _layers(model: Any, cache: Any) -> int:
    return max(len(cache.layers), int(getattr(model.config.get_text_config(), "num_hidden_layers", 0)))
