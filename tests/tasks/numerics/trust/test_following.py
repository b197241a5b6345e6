from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models

from day0.adapters.models.tokenizer import Tokenizer
from day0.tasks.numerics.trust.following import follow, follow_tokens

LETTERS = {letter: place for place, letter in enumerate("abcd.")} | {"ab": 5}
A, B, C, D, DOT, AB = range(6)


def letters() -> Tokenizer:
    """Makes `ab` one token, though `a` and `b` spell it, too."""
    made = FastTokenizer(models.BPE(LETTERS, [("a", "b")]))
    made.decoder = decoders.Fuse()
    return Tokenizer(made)


class Says:
    """A reference that says the given tokens one after the other behind a start of one token."""

    def __init__(self, said: Sequence[int], sure: float = 10.0) -> None:
        self.said, self.sure, self.asked = said, sure, 0

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        self.asked += 1
        logits = torch.zeros(len(ids), len(LETTERS))
        for place, token in enumerate(self.said[: len(ids)]):
            logits[place, token] = self.sure
        return logits


def test_a_text_that_it_says_is_followed_to_its_end_in_one_forward() -> None:
    reference = Says([C, D, C])
    found = follow(letters(), [DOT], "cdc", reference)
    assert found.whole
    assert list(found.tokens) == [C, D, C]
    assert reference.asked == 1


def test_the_first_other_choice_is_named_with_its_margin() -> None:
    found = follow(letters(), [DOT], "cdd", Says([C, D, C], sure=7.0), Says([C, D, C], sure=6.0))
    assert (found.whole, len(found.tokens), found.chosen, found.given) == (False, 2, C, D)
    assert found.margin == 7.0
    assert found.noise == pytest.approx(4 * (1 / 6) ** 0.5)  # one of six logits is off by one
    assert found.decisive


def test_a_near_tie_is_not_decisive() -> None:
    assert not follow(letters(), [DOT], "cdd", Says([C, D, C], sure=0.2), Says([C, D, D], sure=0.2)).decisive


def test_without_a_noise_arm_every_difference_counts() -> None:
    found = follow(letters(), [DOT], "d", Says([C], sure=0.1))
    assert isnan(found.noise)
    assert found.decisive


def test_the_same_text_of_other_tokens_agrees() -> None:
    found = follow(letters(), [DOT], "cabd", Says([C, A, B, D]))
    assert found.whole
    assert list(found.tokens) == [C, A, B, D]


def test_a_text_that_ends_within_a_token_agrees() -> None:
    assert follow(letters(), [DOT], "ca", Says([C, AB])).whole


def test_tokens_that_are_known_are_taken_as_they_are() -> None:
    assert follow_tokens([DOT], [C, A, B], Says([C, A, B])([DOT, C, A, B])).whole
    found = follow_tokens([DOT], [C, A, B], Says([C, AB, D])([DOT, C, A, B]))
    assert (len(found.tokens), found.chosen, found.given) == (1, AB, A)


def test_a_reference_that_is_nan_agrees_with_nothing() -> None:
    found = follow(letters(), [DOT], "cd", lambda ids: torch.full((len(ids), 6), float("nan")))
    assert not found.whole
    assert found.decisive
