"""How likely the reference finds plain English: a reader of checkpoints that is wrong makes text unlikely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

ENGLISH = (
    "Water freezes at zero degrees Celsius and boils at one hundred degrees at sea level. The Earth "
    "goes around the Sun once a year, and the Moon goes around the Earth about once a month. Because "
    "the axis of the Earth is tilted, the days are longer in summer and shorter in winter. Paris is "
    "the capital of France, Rome is the capital of Italy, and Madrid is the capital of Spain. There "
    "are seven days in a week: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday. One, "
    "two, three, four, five, six, seven, eight, nine, ten. Plants use light, water and carbon dioxide "
    "to make sugar, and they give off oxygen.\n\n"
    "Anna got up early in the morning because she wanted to catch the first train to the city. She "
    "made a cup of coffee, put on her coat and went out of the house. It was still dark and very cold. "
    'On the way to the station she met her neighbour, an old man who was walking his dog. "Good '
    'morning," he said. "Where are you going so early?" "I am going to visit my sister," she said. '
    '"She has just had a baby, and I have not seen her for a long time." The old man smiled and told '
    "her to have a good trip. When she arrived at the station, the train was already there. She found "
    "a seat by the window, opened her book and began to read. After a few minutes she fell asleep.\n\n"
    "To make bread you need flour, water, salt and yeast. Mix the flour and the salt in a large bowl, "
    "add the yeast and the water, and stir until you have a soft dough. Cover the bowl with a clean "
    "cloth and leave it in a warm place for about an hour, until the dough has doubled in size. Then "
    "put it into the oven and bake it for forty minutes, until it is golden brown on top."
)
"""Plain facts and a plain story, written for this purpose, so that any model that was trained on text finds
it likely and none has seen it; some 390 tokens of a vocabulary of 50,000."""

_COPIED = 64
_CUE = 4
_SHORTEST = 64
_CHUNK = 64


@dataclass(frozen=True)
class Passage:
    """The text as tokens, its beginning once more at the end.

    Attributes:
        ids: what the reference is run on.
        first: position of the text's first token; after what the tokenizer puts before a text.
        copy: position of the first token of the repetition; the length where the model takes no more.
        characters: of the text whose tokens are predicted.
    """

    ids: Sequence[int]
    first: int
    copy: int
    characters: int


@dataclass(frozen=True)
class Likelihood:
    """What the reference's logits say of a passage.

    Attributes:
        nats: mean negative log-likelihood of a token of the text.
        per_character: the same of a character, which tokenizers cannot change much.
        copied: mean negative log-likelihood of a token of the repetition, the first four left out; NaN where
            there is none.
        uniform: ln of the vocabulary: of a model that knows nothing.
    """

    nats: float
    per_character: float
    copied: float
    uniform: float


def passage(tokenizer: Tokenizer, longest: int) -> Passage | None:
    """The passage for a model of at most so many positions; None where it takes too few to say anything."""
    plain = list(tokenizer.encode(ENGLISH, special=False))
    whole = list(tokenizer.encode(ENGLISH, special=True))
    first = _place(whole, plain)
    room = longest - first - _COPIED
    if first < 0 or min(room, len(plain)) < _SHORTEST:
        return None
    text = plain[:room]
    predicted = text if first else text[1:]
    ids = [*whole[:first], *text, *text[:_COPIED]]
    return Passage(tuple(ids), first, first + len(text), len(tokenizer.decode(predicted)))


def likelihood(read: Passage, logits: Tensor) -> Likelihood:
    """The mean negative log-likelihoods.

    Args:
        read: the passage.
        logits: [length, vocabulary] that the reference gives for it.

    Raises:
        ValueError: the logits are not those of the passage.
    """
    if logits.ndim != 2 or logits.shape[0] != len(read.ids) or logits.shape[1] <= max(read.ids):
        raise ValueError(f"logits of shape {list(logits.shape)} for a passage of {len(read.ids)} tokens")
    losses = token_losses(logits, read.ids)
    text = losses[max(read.first, 1) - 1 : read.copy - 1]
    copied = losses[read.copy + _CUE - 1 :]
    return Likelihood(
        nats=_mean(text),
        per_character=sum(text) / max(read.characters, 1),
        copied=_mean(copied),
        uniform=log(logits.shape[1]),
    )


def token_losses(logits: Tensor, ids: Sequence[int]) -> list[float]:
    """Negative log-likelihood in nats of each token but the first, given those before it; in fp64.

    Args:
        logits: [length, vocabulary].
        ids: as many token ids.
    """
    import torch

    found: list[float] = []
    for start in range(0, len(ids) - 1, _CHUNK):
        rows = logits[start : min(start + _CHUNK, len(ids) - 1)].to(torch.float64)
        wanted = torch.tensor(list(ids[start + 1 : start + 1 + rows.shape[0]]), device=rows.device)
        found += (rows.logsumexp(1) - rows.gather(1, wanted[:, None])[:, 0]).tolist()
    return found


def _place(whole: Sequence[int], part: Sequence[int]) -> int:
    """Where `part` stands in `whole`; -1: nowhere."""
    for start in range(len(whole) - len(part) + 1):
        if list(whole[start : start + len(part)]) == list(part):
            return start
    return -1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
