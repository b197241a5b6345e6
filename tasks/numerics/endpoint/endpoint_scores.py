"""What a server says of a prompt's tokens, held against the reference's logits on the same tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.values import json_number
from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.targets.endpoint import EndpointTarget
from day0.adapters.targets.endpoint_answers import Position

from ... import thresholds
from ...finding import Finding, Subject, make_finding
from ..record import Logits, PromptResult
from ..trust.following import Arms
from .endpoint_ask import Ask, other_tokens, tokenised

_TOP = 5


@dataclass(frozen=True)
class Scores:
    """Of all prompts.

    Attributes:
        logits: see `EndpointComparison`.
        nats: likewise.
        reference_nats: likewise.
    """

    logits: Logits
    nats: float
    reference_nats: float


@dataclass
class Sums:
    """Over positions; see `Logits`.

    Attributes:
        positions: of which the server says something.
        same: where both hold the same token for the likeliest.
        overlap: shares of the five likeliest tokens that are the same.
        fives: positions of which the server lists five.
        divergence: nats.
        decisive: see `Logits`.
        nats: of each token, on the server and of the reference.
    """

    positions: int = 0
    same: int = 0
    overlap: float = 0.0
    fives: int = 0
    divergence: float = 0.0
    decisive: int = 0
    nats: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: Sums) -> None:
        """Takes in another prompt."""
        self.positions += other.positions
        self.same += other.same
        self.overlap += other.overlap
        self.fives += other.fives
        self.divergence += other.divergence
        self.decisive += other.decisive
        self.nats += other.nats


def prompt_scores(
    target: EndpointTarget,
    asks: Sequence[Ask],
    tokenizer: Tokenizer,
    arms: Arms,
    subject: Subject,
    found: list[Finding],
) -> Scores | None:
    """What the server says of the prompts' tokens, held against the reference's logits.

    Args:
        target: the server.
        asks: the prompts.
        tokenizer: of the release.
        arms: the reference.
        subject: of the findings.
        found: gets them.

    Returns:
        None where the server scored no prompt.
    """
    answers: list[tuple[Ask, Sequence[Position]]] = []
    for ask in asks:
        try:
            positions = target.prompt_logprobs(ask.prompt)
        except (WorkerError, UnsupportedError) as error:
            found.append(make_finding("NUM023", subject, f"{ask.name} was not scored: {error.message}."))
            continue
        if not other_tokens(ask, len(positions), subject, found):
            answers.append((ask, positions))
    total, prompts = Sums(), []
    names: Mapping[str, int] | None = None
    both = arms.both([ask.prompt.ids for ask, _ in answers])
    for (ask, positions), (exact, lowered) in zip(answers, both, strict=True):
        if names is None and any(isinstance(position.given, str) for position in positions):
            names = spellings(tokenizer, exact.shape[1])
        sums = compare_positions(positions, ask.prompt.ids, exact, lowered, names or {})
        if sums is None:
            found.append(tokenised(ask, "gives other tokens of it", subject))
            continue
        total.add(sums)
        prompts.append(_prompt_result(ask, sums))
    if not total.positions:
        return None
    logits = _logits(total, prompts)
    _tell_scored(logits, subject, found)
    known = [pair for pair in total.nats if not math.isnan(pair[0])]
    return Scores(
        logits=logits,
        nats=_share(sum(theirs for theirs, _ in known), len(known)),
        reference_nats=_share(sum(ours for _, ours in known), len(known)),
    )


def compare_positions(
    positions: Sequence[Position],
    ids: Sequence[int],
    exact: Tensor,
    lowered: Tensor | None,
    names: Mapping[str, int],
) -> Sums | None:
    """Holds what a server says of a prompt's tokens against the reference's logits.

    KL is that of the reference from the server over the tokens that the server lists and all others taken as
    one: by the data processing inequality at most the true one. A position counts as decisive as in
    `compare_logits`.

    Args:
        positions: as many as there are tokens.
        ids: the prompt's tokens.
        exact: [length, vocabulary] of the reference.
        lowered: the same in the target's precision; None: every disagreement counts as decisive.
        names: text of a token -> its id, for servers that name tokens by their texts.

    Returns:
        Sums over the positions of which the server says something; None where its tokens are others.
    """
    sums = Sums()
    for place, position in enumerate(positions):
        given = _named(position.given, names)
        if given is not None and given not in (-1, ids[place]):
            return None
        if place == 0 or not position.top:
            continue
        row = exact[place - 1].double()
        noise = lowered[place - 1].double() if lowered is not None else None
        _add_position(sums, position, ids[place], row, noise, names)
    return sums


def _add_position(
    sums: Sums,
    position: Position,
    given: int,
    row: Tensor,
    noise: Tensor | None,
    names: Mapping[str, int],
) -> None:
    listed = {_named(token, names): value for token, value in position.top.items()}
    known = {
        token: value for token, value in listed.items() if token is not None and 0 <= token < row.shape[0]
    }
    best = _named(position.best, names) if position.best is not None else None
    if best is None or not known:
        return  # a token that no text names alone, such as part of a character
    log_row = row.log_softmax(0)
    likeliest = row.topk(min(_TOP, row.shape[0])).indices.tolist()
    sums.positions += 1
    sums.same += best == likeliest[0]
    theirs = sorted(known, key=known.__getitem__, reverse=True)[:_TOP]
    if len(theirs) == len(likeliest) == _TOP:
        sums.fives += 1
        sums.overlap += len(set(theirs) & set(likeliest)) / _TOP
    sums.divergence += _partial_kl(log_row, known)
    if best != likeliest[0]:
        margin = float(row[likeliest[0]] - row[best])
        rounding = float((noise - row).square().mean().sqrt()) if noise is not None else 0.0
        sums.decisive += margin > thresholds.NUMERICS_DECISIVE_SIGMA * rounding
    sums.nats.append((-position.logprob, -float(log_row[given])))


def _partial_kl(log_row: Tensor, known: Mapping[int, float]) -> float:
    """KL(reference || server) in nats over the listed tokens and the rest as one."""
    tokens = torch.tensor(list(known))
    ours = log_row[tokens]
    theirs = torch.tensor(list(known.values()), dtype=torch.float64).clamp_min(-100.0)
    rest_ours = max(1.0 - float(ours.exp().sum()), 0.0)
    # Listed log-probabilities are printed and rounded, so what is left of 1 may come out as nothing.
    rest_theirs = max(1.0 - float(theirs.exp().sum()), 1e-6)
    rest = rest_ours * math.log(rest_ours / rest_theirs) if rest_ours > 0 else 0.0
    return max(0.0, float((ours.exp() * (ours - theirs)).sum()) + rest)


def spellings(tokenizer: Tokenizer, vocabulary: int) -> Mapping[str, int]:
    """Text -> the one token id that spells it within a text; texts of several ids are left out."""
    anchor = tokenizer.encode("a", special=False)[-1:]
    before = tokenizer.decode(anchor)
    found: dict[str, int] = {}
    several: set[str] = set()
    for token in range(vocabulary):
        whole = tokenizer.decode([*anchor, token])
        text = whole[len(before) :] if whole.startswith(before) else ""
        if text in found:
            several.add(text)
        found.setdefault(text, token)
    return {
        text: token for text, token in found.items() if text and text not in several and "\ufffd" not in text
    }


def _named(token: int | str | None, names: Mapping[str, int]) -> int | None:
    return token if isinstance(token, int) or token is None else names.get(token)


def _share(value: float, of: int) -> float:
    return value / of if of else math.nan


def _logits(sums: Sums, prompts: Sequence[PromptResult]) -> Logits:
    return Logits(
        top1=json_number(_share(sums.same, sums.positions)),
        top5=json_number(_share(sums.overlap, sums.fives)),
        kl=json_number(_share(sums.divergence, sums.positions)),
        decisive=sums.decisive,
        positions=sums.positions,
        prompts=tuple(prompts),
    )


def _prompt_result(ask: Ask, sums: Sums) -> PromptResult:
    whole = _logits(sums, ())
    return PromptResult(
        name=ask.name,
        purpose=ask.purpose,
        tokens=sums.positions,
        kl=whole.kl,
        top1=whole.top1,
        top5=whole.top5,
        decisive=sums.decisive,
        reason="" if sums.positions else "the server names no token of it that the tokenizer knows",
    )


def _tell_scored(logits: Logits, subject: Subject, found: list[Finding]) -> None:
    limit = max(1.0, thresholds.NUMERICS_DECISIVE_SHARE * logits.positions)
    if logits.decisive <= limit:
        return
    said = (
        f"{subject.name} holds another token for the likeliest at {logits.decisive} of {logits.positions} "
        f"positions where the reference is decided; top-1 agreement {float(logits.top1):.3f}, KL at least "
        f"{float(logits.kl):.3g} nats."
    )
    found.append(make_finding("NUM022", Subject(kind="metric", name="prompt_logprobs"), said))
