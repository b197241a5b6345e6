"""What a phase gives a model on meta: token ids, a mask, the cache of an earlier forward, and how many."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

PREFILL_TOKENS = 64
LONG_TOKENS = 4096
"""Long enough for sparse indexers and chunked attention to take their long path (DeepSeek-V4 differs
here)."""
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""What model families call the cache that a forward returns and takes."""


@dataclass(frozen=True)
class Form:
    """How a model is called.

    Attributes:
        mask: whether it is given a padding mask.
        cache: whether it is told to keep one.
        whole: whether a step is given the whole sequence beside the cache, instead of its own token.
        rows: of token ids, where a sequence is several at once (codebooks of audio).
    """

    mask: bool = False
    cache: bool = True
    whole: bool = False
    rows: int = 1


class NoCache(ValueError):
    """A forward returned nothing that a next step could go on from."""


def inputs_of(model: torch.nn.Module, length: int, seen: int, form: Form) -> dict[str, Any]:
    """Arguments of one forward of a batch of one.

    Args:
    model: takes them.
    length: tokens given.
    seen: tokens of the sequence so far, those included.
    form: how the model is called.
    """
    ids = torch.zeros((form.rows, length), dtype=torch.int64, device="meta")
    inputs: dict[str, Any] = {"input_ids": ids}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        inputs["decoder_input_ids"] = ids[:, :1]
    if form.mask:
        inputs["attention_mask"] = torch.zeros((1, seen), dtype=torch.int64, device="meta")
    if takes(model, "use_cache"):
        inputs["use_cache"] = form.cache
    return inputs


def takes(model: torch.nn.Module, name: str) -> bool:
    """Whether the model's forward takes an argument of that name."""
    parameters = inspect.signature(model.forward).parameters
    return name in parameters or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def text_config(config: Any) -> Any:
    """The text part of a composite config (the decoder of two), or the config itself."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def stated(config: Any, name: str) -> Any:
    """A value of the config; None where it has none, or another one for each layer."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers refuses values that differ from layer to layer
        return None


def long_prefill_tokens(config: Any) -> int:
    """Tokens of the long prefill: beyond the sliding window and `LONG_TOKENS`, within the positions."""
    text = text_config(config)
    windows = [stated(text, name) for name in ("sliding_window", "attention_chunk_size")]
    wanted = max([LONG_TOKENS, *(window + 1 for window in windows if isinstance(window, int))])
    limits = (stated(text, name) for name in ("max_position_embeddings", "max_seq_len", "n_positions"))
    positions = next((count for count in limits if isinstance(count, int)), None)
    return min(wanted, positions) if isinstance(positions, int) and positions > 0 else wanted


def cache_of(output: Any) -> dict[str, Any]:
    """The cache that a forward returned, under the name under which the next one takes it.

    Raises:
        NoCache: there is none.
    """
    for name in CACHE_NAMES:
        if (cache := getattr(output, name, None)) is not None:
            return {name: cache}
    raise NoCache(f"the forward of {type(output).__name__} returned no cache under {', '.join(CACHE_NAMES)}")
