"""A served model held against the reference by what a server shows.

That is its greedy words and, where it gives them, the log-probabilities of a prompt's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.targets.endpoint import EndpointTarget

from ...finding import Finding, Subject, make_finding
from ..record import Logits, Says
from ..trust.following import Arms
from .endpoint_ask import Ask
from .endpoint_greedy import greedy_tokens
from .endpoint_scores import prompt_scores


@dataclass(frozen=True)
class EndpointComparison:
    """What the comparison came to.

    Attributes:
        logits: agreement of the prompts' distributions; None where the server gives none. KL is taken over
            the tokens that the server lists and all others as one, which is at most the true one.
        decode: agreement of greedy tokens, each prompt up to its first difference; None where there are none.
        says: the first prompt's continuation on both sides.
        nats: mean negative log-likelihood of the prompts' tokens on the server; NaN where it is not given.
        reference_nats: the same of the reference, on the same tokens.
        findings: of all that differs or could not be asked.
    """

    logits: Logits | None = None
    decode: Logits | None = None
    says: Says | None = None
    nats: float = math.nan
    reference_nats: float = math.nan
    findings: Sequence[Finding] = ()


def compare_endpoint(
    target: EndpointTarget, asks: Sequence[Ask], tokenizer: Tokenizer, arms: Arms, new_tokens: int
) -> EndpointComparison:
    """Compares whatever the server can show; what it cannot is a finding, not an error.

    Args:
        target: the server.
        asks: the prompts, the main one first.
        tokenizer: of the release.
        arms: the reference; run on each prompt with its continuation, and on each prompt.
        new_tokens: how far each prompt is continued.

    Raises:
        WorkerError: the server cannot be reached at all.
    """
    subject = Subject(kind="target", name=str(target.spec))
    found: list[Finding] = []
    offer = target.offer
    greedy, scored = None, None
    if offer.text:
        greedy = greedy_tokens(target, asks, tokenizer, arms, new_tokens, subject, found)
    else:
        why = offer.reasons.get("text", "it completes no plain text")
        said = f"{target.spec} was not asked for greedy tokens: {why}."
        found.append(make_finding("NUM023", subject, said))
    if offer.logprobs:
        if offer.shift:
            said = f"{target.spec} lists the log-probabilities of a prompt one position too early."
            found.append(make_finding("NUM025", subject, said))
        scored = prompt_scores(target, asks, tokenizer, arms, subject, found)
    else:
        why = offer.reasons.get("prompt_logprobs", "it gives none")
        said = f"{target.spec} was not asked for the log-probabilities of prompts: {why}."
        found.append(make_finding("NUM023", subject, said))
    return EndpointComparison(
        logits=scored.logits if scored is not None else None,
        decode=greedy[0] if greedy is not None else None,
        says=greedy[1] if greedy is not None else None,
        nats=scored.nats if scored is not None else math.nan,
        reference_nats=scored.reference_nats if scored is not None else math.nan,
        findings=tuple(found),
    )
