"""Which tokens are compared: the prompt, what the reference says to it, then the shipped texts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.models.tokenizer import Tokenizer

from ... import thresholds
from .passages import PASSAGES
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


def length_for(config: Mapping[str, Any], wanted: int) -> int:
    """Tokens to compare: as many as wanted, or fewer where the model takes no more positions."""
    limits: list[int] = [
        part[key]
        for part in _parts(config)
        for key in ("max_position_embeddings", "n_positions", "max_seq_len")
        if type(part.get(key)) is int and part[key] > 0
    ]
    room = min(limits) - thresholds.NUMERICS_DECODE_STEPS if limits else wanted
    return max(1, min(wanted, room))


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
    """Prompt, continuation and the starts of all texts, one after the other, `length` tokens in all."""
    begin = [*start, *said][:length]
    texts = [tuple(tokenizer.encode(text, special=False)) for text in TEXTS]
    left = length - len(begin)
    share = -(-left // len(texts))
    ids = [*begin, *(token for text in texts for token in text[:share])]
    more = [token for text in texts for token in text[share:]]
    return Tokens(
        tuple([*ids, *filled(more or ids, max(0, length - len(ids)))][:length]), len(start), len(said)
    )


def running_text(tokenizer: Tokenizer) -> Sequence[int]:
    """The token ids of the passages, for prompts of any length."""
    return tuple(token for text in PASSAGES for token in tokenizer.encode(f"{text}\n\n", special=False))


def tried_texts(prompt: str) -> Sequence[str]:
    """All texts that a comparison makes tokens of."""
    return (prompt, *TEXTS, *PASSAGES)


def filled(text: Sequence[int], length: int) -> tuple[int, ...]:
    """The first `length` tokens of a text that starts again at its end; none of an empty one."""
    if not text:
        return ()
    return tuple((tuple(text) * -(-length // len(text)))[:length])


def seeded(vocabulary: int, length: int) -> Sequence[int]:
    """Token ids drawn evenly by a fixed seed, for a release without a tokenizer."""
    draw = random.Random(_SEED)
    return tuple(draw.randrange(vocabulary) for _ in range(length))


def _parts(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    text = config.get("text_config")
    return (config, text) if isinstance(text, Mapping) else (config,)
