"""A text held against what the reference would say: token by token along the text, not by free continuation.

One forward over prompt and text shows every choice at once, where generating would take one for each token.
The text may have been made of other tokens than the tokenizer makes of it, so where the reference's choice
differs and spells the same text, the rest is tokenised anew behind that choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.models.tokenizer import Tokenizer

from .. import thresholds

Forward = Callable[[Sequence[int]], Tensor]
"""Token ids of one sequence -> logits [length, vocabulary]."""

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


def follow(
    tokenizer: Tokenizer, start: Sequence[int], text: str, forward: Forward, noise: Forward | None = None
) -> Followed:
    """Follows `text`, said after the tokens `start`, by the reference's own choices.

    Args:
        tokenizer: of the release.
        start: what stands before the text; at least one token.
        text: that was said.
        forward: the reference.
        noise: the reference in the precision in which the text was made; asked only where they differ.
    """
    fixed: list[int] = []
    rest = text
    for _ in range(_ROUNDS):
        said = [*fixed, *_tokens(tokenizer, [*start, *fixed], rest)]
        found, other = _along(tokenizer, start, said, len(fixed), text, forward, noise)
        if other is None:
            return found
        fixed = [*found.tokens, other]
        rest = text[len(_spoken(tokenizer, start, fixed)) :]
    return found


def follow_tokens(
    start: Sequence[int], said: Sequence[int], forward: Forward, noise: Forward | None = None
) -> Followed:
    """The same where the tokens themselves are known."""
    logits = forward([*start, *said])
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
    forward: Forward,
    noise: Forward | None,
) -> tuple[Followed, int | None]:
    """How far it goes with these tokens; and that choice where it spells the same text otherwise."""
    logits = forward([*start, *said])
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
