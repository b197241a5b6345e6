from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers, processors

from day0.adapters.models.likelihood import ENGLISH, Passage, likelihood, passage, token_losses
from day0.adapters.models.tokenizer import Tokenizer


def words(first: bool = False) -> Tokenizer:
    """A tokenizer of whole words and marks; with a token before each text where asked for."""
    known = {"<s>": 0, "?": 1}
    split = pre_tokenizers.Whitespace()
    for word, _ in split.pre_tokenize_str(ENGLISH):
        known.setdefault(word, len(known))
    made = FastTokenizer(models.WordLevel(known, unk_token="?"))
    made.pre_tokenizer = split
    if first:
        made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return Tokenizer(made)


def test_losses_are_torchs_cross_entropy() -> None:
    torch.manual_seed(1)
    logits, ids = torch.randn(150, 40) * 5, torch.randint(40, (150,))
    expected = torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:], reduction="none")
    torch.testing.assert_close(torch.tensor(token_losses(logits, ids.tolist())).double(), expected)


@pytest.mark.parametrize("first", [False, True])
def test_the_passage_is_the_text_and_its_beginning_again(first: bool) -> None:
    tokenizer = words(first)
    plain = list(tokenizer.encode(ENGLISH, special=False))
    read = passage(tokenizer, 10_000)
    assert read is not None
    assert list(read.ids) == [0] * first + plain + plain[:64]
    assert (read.first, read.copy) == (int(first), int(first) + len(plain))


def test_a_model_of_few_positions_gets_a_part_or_nothing() -> None:
    tokenizer = words()
    read = passage(tokenizer, 160)
    assert read is not None
    assert len(read.ids) == 160
    assert read.ids[96:] == read.ids[:64]
    assert passage(tokenizer, 127) is None


def _logits(ids: Sequence[int], sure: dict[int, float]) -> torch.Tensor:
    """Uniform over 16 tokens, but for the probability that a position gives to the token after it."""
    logits = torch.zeros(len(ids), 16)
    for place, probability in sure.items():
        logits[place, ids[place + 1]] = log(probability / (1 - probability) * 15)
    return logits


def test_text_and_repetition_are_counted_apart() -> None:
    ids = [0, *[2, 3, 4, 5, 6, 7], *[2, 3, 4, 5, 6, 7]]
    read = Passage(ids, first=1, copy=7, characters=12)
    found = likelihood(read, _logits(ids, dict.fromkeys(range(6), 0.5) | dict.fromkeys(range(10, 12), 0.9)))
    assert found.nats == pytest.approx(log(2))
    assert found.per_character == pytest.approx(6 * log(2) / 12)
    assert found.copied == pytest.approx(-log(0.9))  # the first four of the repetition are the cue
    assert found.uniform == pytest.approx(log(16))


def test_logits_of_something_else_are_refused() -> None:
    read = Passage([1, 2, 3], first=0, copy=3, characters=5)
    with pytest.raises(ValueError, match=r"\[2, 16\] for a passage of 3"):
        likelihood(read, torch.zeros(2, 16))
    with pytest.raises(ValueError, match="passage"):
        likelihood(read, torch.zeros(3, 3))
    assert isnan(likelihood(read, torch.full((3, 16), float("nan"))).nats)
