"""A text held against what the reference would say: token by token along the text, not by free continuation.

One forward over prompt and text shows every choice at once, where generating would take one for each token.
The text may have been made of other tokens than the tokenizer makes of it, so where the reference's choice
differs and spells the same text, the rest is tokenised anew behind that choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.models.tokenizer import Tokenizer

from ... import thresholds

Forward = Callable[[Sequence[int]], Tensor]
"""Token ids of one sequence -> logits [length, vocabulary]."""


@dataclass(frozen=True)
class Arms:
    """The reference as a function of tokens.

    Attributes:
        exact: in fp32 or higher.
        lowered: in the release's own precision; its distance from the former is what rounding explains.
        many: both of many sequences, in order, where that is cheaper than one after the other (one walk over
            the weights for all of them); None: it is not.
    """

    exact: Forward
    lowered: Forward | None = None
    many: Callable[[Sequence[Sequence[int]]], Iterable[tuple[Tensor, Tensor | None]]] | None = None

    def both(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Logits [length, vocabulary] of each sequence in both precisions; one at a time is held."""
        if self.many is not None:
            yield from self.many(sequences)
            return
        for ids in sequences:
            yield self.exact(ids), self.lowered(ids) if self.lowered is not None else None


_ROUNDS = 4
"""Forwards for one text; each further one stands for a place where it was made of other tokens."""


@dataclass(frozen=True)
class Followed:
    """How far the reference would have said the text itself.

    Attributes:
        tokens: that the text was read as, up to the end or the first difference.
        whole: whether it goes with the text to its end.
        chosen: the reference's token at the first difference, or -1.
        given: the text's token there, or -1.
        margin: by how much the reference's logit of its own token exceeds that of the text's, there.
        noise: what of such a margin rounding explains; NaN where no noise arm was run.
    """

    tokens: Sequence[int]
    whole: bool
    chosen: int = -1
    given: int = -1
    margin: float = 0.0
    noise: float = float("nan")

    @property
    def decisive(self) -> bool:
        """Whether it differs, and by more than rounding explains."""
        return not self.whole and not self.margin <= self.noise


def read_as(tokenizer: Tokenizer, start: Sequence[int], text: str) -> Sequence[int]:
    """The tokens of a text that goes on from `start`: those on which `follow` runs the reference first."""
    return tuple(_tokens(tokenizer, start, text))


def follow(
    tokenizer: Tokenizer,
    start: Sequence[int],
    text: str,
    forward: Forward,
    noise: Forward | None = None,
    *,
    known: Tensor | None = None,
) -> Followed:
    """Follows `text`, said after the tokens `start`, by the reference's own choices.

    Args:
        tokenizer: of the release.
        start: what stands before the text; at least one token.
        text: that was said.
        forward: the reference.
        noise: the reference in the precision in which the text was made; asked only where they differ.
        known: the reference's logits for `start` and `read_as(...)`, where they are there already.
    """
    fixed: list[int] = []
    rest = text
    for _ in range(_ROUNDS):
        said = [*fixed, *_tokens(tokenizer, [*start, *fixed], rest)]
        logits = forward([*start, *said]) if known is None or fixed else known
        found, other = _along(tokenizer, start, said, len(fixed), text, logits, noise)
        if other is None:
            return found
        fixed = [*found.tokens, other]
        rest = text[len(_spoken(tokenizer, start, fixed)) :]
    return found


def follow_tokens(
    start: Sequence[int], said: Sequence[int], logits: Tensor, noise: Forward | None = None
) -> Followed:
    """The same where the tokens themselves are known.

    Args:
        start: what stands before them; at least one token.
        said: the tokens.
        logits: the reference's for both.
        noise: see `follow`.
    """
    for index, token in enumerate(said):
        place = len(start) - 1 + index
        best = int(logits[place].float().argmax())
        if best != token:
            return _difference(start, said, index, best, logits[place], noise)
    return Followed(tuple(said), whole=True)


def _along(
    tokenizer: Tokenizer,
    start: Sequence[int],
    said: Sequence[int],
    known: int,
    text: str,
    logits: Tensor,
    noise: Forward | None,
) -> tuple[Followed, int | None]:
    """How far it goes with these tokens; and that choice where it spells the same text otherwise."""
    for index in range(known, len(said)):
        place = len(start) - 1 + index
        best = int(logits[place].float().argmax())
        if best == said[index]:
            continue
        before = _spoken(tokenizer, start, said[:index])
        after = _spoken(tokenizer, start, [*said[:index], best])
        if len(after) > len(before) and after.startswith(text):  # the text ends within the reference's token
            return Followed(tuple(said[:index]), whole=True), None
        if len(after) > len(before) and text.startswith(after):
            return Followed(tuple(said[:index]), whole=False), best
        return _difference(start, said, index, best, logits[place], noise), None
    return Followed(tuple(said), whole=True), None


def _difference(
    start: Sequence[int], said: Sequence[int], index: int, best: int, row: Tensor, noise: Forward | None
) -> Followed:
    exact = row.double()
    rounding = float("nan")
    if noise is not None:
        # One position of the noise arm: the same tokens up to the difference.
        other = noise([*start, *said[:index]])[-1].double()
        rounding = float((other - exact).square().mean().sqrt()) * thresholds.NUMERICS_DECISIVE_SIGMA
    margin = float(exact[best] - exact[said[index]])
    return Followed(tuple(said[:index]), False, best, said[index], margin, rounding)


def _tokens(tokenizer: Tokenizer, before: Sequence[int], text: str) -> list[int]:
    """The tokens of a text that goes on from others: some tokenizers put a space before every text."""
    joined = list(tokenizer.encode(tokenizer.decode(before[-_CONTEXT:]) + text, special=False))
    context = list(tokenizer.encode(tokenizer.decode(before[-_CONTEXT:]), special=False))
    if joined[: len(context)] == context:
        return joined[len(context) :]
    return list(tokenizer.encode(text, special=False))


_CONTEXT = 16


def _spoken(tokenizer: Tokenizer, start: Sequence[int], said: Sequence[int]) -> str:
    """The text of `said` as it stands behind `start`."""
    before = tokenizer.decode(start)
    whole = tokenizer.decode([*start, *said])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(said)
