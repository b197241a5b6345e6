from __future__ import annotations

from typing import Any

import pytest

from day0.adapters.models.tokenizer import Tokenizer
from day0.tasks import thresholds
from day0.tasks.numerics.prompts.tokens import from_texts, length_for, seeded, vocabulary_of


class Letters:
    """A tokenizer of one token a character."""

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        ids = [ord(letter) for letter in text]
        return type("Encoding", (), {"ids": [1, *ids] if add_special_tokens else ids})


def test_prompt_continuation_and_texts_fill_the_sequence() -> None:
    tokenizer = Tokenizer(Letters())
    start = tokenizer.encode("Hi", special=True)
    tokens = from_texts(tokenizer, start, [7, 8], 40)
    assert tokens.ids[:5] == (1, 72, 105, 7, 8)
    assert (tokens.prompt, tokens.said, len(tokens.ids)) == (3, 2, 40)


def test_seeded_ids_are_the_same_every_time_and_in_range() -> None:
    assert seeded(50, 30) == seeded(50, 30)
    assert all(0 <= token < 50 for token in seeded(50, 30))


def test_length_and_vocabulary_follow_the_config() -> None:
    steps = thresholds.NUMERICS_DECODE_STEPS
    assert length_for({"max_position_embeddings": 64}, 128) == 64 - steps
    assert length_for({"max_position_embeddings": 100_000}, 128) == 128
    assert length_for({"text_config": {"max_position_embeddings": 32}}, 128) == 32 - steps
    assert vocabulary_of({"text_config": {"vocab_size": 11}}) == 11
    with pytest.raises(KeyError):
        vocabulary_of({"vocab_size": True})
