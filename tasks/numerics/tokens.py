"""Which tokens are compared: the prompt, what the reference says to it, then the shipped texts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.models.tokenizer import Tokenizer

from .. import thresholds
from .prompts import TEXTS

_SEED = 20260923


@dataclass(frozen=True)
class Tokens:
    """The one sequence that every node is compared on.

    Attributes:
        ids: token ids.
        prompt: how many at its start are the prompt; 0 where there is no tokenizer.
        said: how many after these are the reference's greedy continuation of it.
    """

    ids: Sequence[int]
    prompt: int = 0
    said: int = 0


def length_for(config: Mapping[str, Any]) -> int:
    """Tokens to compare: `NUMERICS_TOKENS`, or fewer where the model takes no more positions."""
    limits: list[int] = [
        part[key]
        for part in _parts(config)
        for key in ("max_position_embeddings", "n_positions", "max_seq_len")
        if type(part.get(key)) is int and part[key] > 0
    ]
    return min([thresholds.NUMERICS_TOKENS, *limits])


def vocabulary_of(config: Mapping[str, Any]) -> int:
    """Number of token ids that the model takes.

    Raises:
        KeyError: the config does not say.
    """
    for part in _parts(config):
        if type(part.get("vocab_size")) is int and part["vocab_size"] > 0:
            return int(part["vocab_size"])
    raise KeyError("vocab_size")


def from_texts(tokenizer: Tokenizer, start: Sequence[int], said: Sequence[int], length: int) -> Tokens:
    """Prompt, continuation and texts, one after the other, cut to `length`."""
    ids = [*start, *said]
    for text in TEXTS:
        ids.extend(tokenizer.encode(text, special=False))
    return Tokens(tuple(ids[:length]), prompt=len(start), said=len(said))


def seeded(vocabulary: int, length: int) -> Tokens:
    """Token ids drawn evenly by a fixed seed, for a release without a tokenizer."""
    draw = random.Random(_SEED)
    return Tokens(tuple(draw.randrange(vocabulary) for _ in range(length)))


def _parts(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    text = config.get("text_config")
    return (config, text) if isinstance(text, Mapping) else (config,)
