"""What a server says greedily, held against the reference's own choices along the same text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.values import json_number
from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.targets.endpoint import EndpointTarget
from day0.adapters.targets.endpoint_answers import Completion

from ...finding import Finding, Subject, make_finding
from ..record import Logits, PromptResult, Says
from ..trust.following import Arms, Followed, follow, follow_tokens, read_as
from .endpoint_ask import Ask, other_tokens

_SHOWN = 60


def greedy_tokens(
    target: EndpointTarget,
    asks: Sequence[Ask],
    tokenizer: Tokenizer,
    arms: Arms,
    new_tokens: int,
    subject: Subject,
    found: list[Finding],
) -> tuple[Logits, Says] | None:
    """Each prompt continued by the server, held against the reference's own choices.

    Args:
        target: the server.
        asks: the prompts, the main one first.
        tokenizer: of the release.
        arms: the reference.
        new_tokens: how far each is continued.
        subject: of the findings.
        found: gets them.

    Returns:
        Agreement up to each prompt's first difference and what both sides say to the first; None where the
        server continued none.
    """
    answers: list[tuple[Ask, Completion]] = []
    for ask in asks:
        try:
            answer = target.complete(ask.prompt, new_tokens)
        except (WorkerError, UnsupportedError) as error:
            found.append(make_finding("NUM023", subject, f"{ask.name} was not continued: {error.message}."))
            continue
        if other_tokens(ask, answer.prompt_tokens, subject, found):
            continue
        answers.append((ask, answer))
    if not answers:
        return None
    sequences = [[*ask.prompt.ids, *_said(tokenizer, ask, answer)] for ask, answer in answers]
    results = [
        _followed(tokenizer, ask, answer, both, arms)
        for (ask, answer), both in zip(answers, arms.both(sequences), strict=True)
    ]
    rows = [(ask, result) for (ask, _), result in zip(answers, results, strict=True)]
    _tell_greedy(rows, tokenizer, subject, found)
    ask, answer = answers[0]
    return _decode(rows), _says(tokenizer, ask, answer, results[0])


def _said(tokenizer: Tokenizer, ask: Ask, answer: Completion) -> Sequence[int]:
    return answer.ids if answer.ids is not None else read_as(tokenizer, ask.prompt.ids, answer.text)


def _followed(
    tokenizer: Tokenizer, ask: Ask, answer: Completion, both: tuple[Tensor, Tensor | None], arms: Arms
) -> Followed:
    exact, lowered = both
    start = ask.prompt.ids

    def noise(ids: Sequence[int]) -> Tensor:
        """The noise arm up to the first difference, which the tokens after it do not change."""
        if lowered is not None and len(ids) <= lowered.shape[0]:
            return lowered[: len(ids)]
        assert arms.lowered is not None
        return arms.lowered(ids)

    known = noise if lowered is not None else None
    if answer.ids is not None:
        return follow_tokens(start, answer.ids, exact, known)
    return follow(tokenizer, start, answer.text, arms.exact, known, known=exact)


def _decode(rows: Sequence[tuple[Ask, Followed]]) -> Logits:
    prompts = []
    for ask, result in rows:
        compared = len(result.tokens) + (not result.whole)
        prompts.append(
            PromptResult(
                name=ask.name,
                purpose=ask.purpose,
                tokens=compared,
                top1=json_number(len(result.tokens) / compared if compared else math.nan),
                decisive=int(result.decisive),
                reason="" if compared else "the server ended at once",
            )
        )
    positions = sum(prompt.tokens for prompt in prompts)
    agreed = sum(len(result.tokens) for _, result in rows)
    return Logits(
        top1=json_number(agreed / positions if positions else math.nan),
        top5="NaN",
        kl="NaN",
        decisive=sum(prompt.decisive for prompt in prompts),
        positions=positions,
        prompts=tuple(prompts),
    )


def _says(tokenizer: Tokenizer, ask: Ask, answer: Completion, result: Followed) -> Says:
    ours = answer.text
    if not result.whole:
        ours = tokenizer.decode([*result.tokens, result.chosen])
    return Says(prompt=ask.prompt.text, reference=ours, target=answer.text, agree=result.whole)


def _tell_greedy(
    rows: Sequence[tuple[Ask, Followed]], tokenizer: Tokenizer, subject: Subject, found: list[Finding]
) -> None:
    other = [(ask, result) for ask, result in rows if result.decisive]
    if not other:
        return
    ask, result = other[0]
    theirs, ours = tokenizer.decode([result.given]), tokenizer.decode([result.chosen])
    said = (
        f"{subject.name} goes on otherwise than the reference after {len(other)} of {len(rows)} prompts; "
        f"after {ask.prompt.text[-_SHOWN:]!r} its token {len(result.tokens)} is {theirs!r}, the reference's "
        f"{ours!r}, by a margin of {result.margin:.3g} where rounding explains {result.noise:.3g}."
    )
    found.append(make_finding("NUM022", subject, said))
