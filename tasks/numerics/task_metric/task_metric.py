"""The shipped questions answered by both sides: right where the right continuation is the likeliest one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from day0.adapters.base.target import Target
from day0.adapters.base.values import json_number
from day0.adapters.models.tokenizer import Tokenizer
from day0.adapters.targets.endpoint import EndpointTarget, Prompt

from ... import thresholds
from ...finding import Finding, Subject, make_finding
from ..measures.values import float_tensors
from ..record_parts import TaskMetric
from .task_items import TASK, Item

_Z = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""
_ROWS = 32


@dataclass(frozen=True)
class Pair:
    """One continuation of one question as tokens.

    Attributes:
        text: context and continuation.
        context: token ids before it.
        said: its token ids.
    """

    text: str
    context: Sequence[int]
    said: Sequence[int]


Likelihoods = Callable[[Sequence[Pair]], Sequence[float]]
"""Log-likelihood in nats of what each pair says, given its context; NaN where it is not known."""


def measure_task(
    items: Sequence[Item], tokenizer: Tokenizer | None, reference: Likelihoods, target: Likelihoods
) -> TaskMetric:
    """Both sides on the same questions, with a 95 % interval on the difference of their shares.

    The reference is asked first, and the target only where the reference is clearly better than chance:
    random weights answer no question.

    Raises:
        Day0Error: whatever the two functions raise.
    """
    if tokenizer is None:
        return TaskMetric(name=TASK, reason="the release has no tokenizer.json")
    pairs, owners = pairs_of(items, tokenizer)
    ours = answers(reference(pairs), owners, items)
    known = [right for right in ours if right is not None]
    share = sum(known) / len(known) if known else math.nan
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    if not known or wilson(sum(known), len(known))[0] <= chance + thresholds.TASK_ABOVE_CHANCE:
        why = f"the reference answers {share:.3f} of {len(known)} rightly, where guessing gives {chance:.3f}"
        return TaskMetric(name=TASK, items=len(known), reference=json_number(share), reason=why)
    theirs = answers(target(pairs), owners, items)
    both = [(one, other) for one, other in zip(ours, theirs, strict=True) if None not in (one, other)]
    if len(both) < thresholds.TASK_ANSWERED * len(items):
        why = (
            f"the target gives the likelihood of every choice for only {len(both)} of {len(items)} questions"
        )
        return TaskMetric(name=TASK, items=len(both), reference=json_number(share), reason=why)
    low, high = paired_interval(
        both=sum(bool(one and other) for one, other in both),
        target_only=sum(bool(other and not one) for one, other in both),
        reference_only=sum(bool(one and not other) for one, other in both),
        neither=sum(not one and not other for one, other in both),
    )
    one, other = (sum(bool(pair[side]) for pair in both) / len(both) for side in (0, 1))
    return TaskMetric(
        name=TASK,
        items=len(both),
        reference=json_number(one),
        target=json_number(other),
        difference=json_number(other - one),
        low=json_number(low),
        high=json_number(high),
    )


def task_findings(metric: TaskMetric, target: str) -> list[Finding]:
    """A warning where the target answers fewer questions rightly than chance explains."""
    if metric.reason or not float(metric.high) < 0:
        return []
    said = (
        f"{target} answers {float(metric.target):.3f} of {metric.items} questions rightly, the reference "
        f"{float(metric.reference):.3f}; the difference lies between {float(metric.low):.3f} and "
        f"{float(metric.high):.3f} with 95 % confidence."
    )
    return [make_finding("NUM040", Subject(kind="metric", name=metric.name), said)]


def pairs_of(items: Sequence[Item], tokenizer: Tokenizer) -> tuple[list[Pair], list[tuple[int, int]]]:
    """Each choice of each item as tokens, and which item and choice it is.

    What a choice adds to its context is found by tokenising both together, so that a space goes where the
    tokenizer puts it; a context whose last token the choice changes is cut back to what both share.
    """
    pairs, owners = [], []
    for place, item in enumerate(items):
        start = list(tokenizer.encode(item.context, special=True))
        wholes = [list(tokenizer.encode(item.context + choice, special=True)) for choice in item.choices]
        shared = min(_shared(start, whole) for whole in wholes)
        for choice, whole in enumerate(wholes):
            pairs.append(Pair(item.context + item.choices[choice], whole[:shared], whole[shared:]))
            owners.append((place, choice))
    return pairs, owners


def answers(
    values: Sequence[float], owners: Sequence[tuple[int, int]], items: Sequence[Item]
) -> list[bool | None]:
    """Whether each item's right choice is the likeliest; None where a choice's likelihood is not known."""
    held: list[list[float]] = [[] for _ in items]
    for value, (place, _) in zip(values, owners, strict=True):
        held[place].append(value)
    return [
        None if any(math.isnan(value) for value in row) else row.index(max(row)) == item.answer
        for row, item in zip(held, items, strict=True)
    ]


def by_logits(forward: Callable[[Sequence[Sequence[int]]], Iterable[Tensor]]) -> Likelihoods:
    """Likelihoods by a function of token sequences, given in batches of equal length.

    Choices of one token share the forward of their context.

    Args:
        forward: sequences of equal length -> logits [length, vocabulary] of each, in order.
    """

    def likelihoods(pairs: Sequence[Pair]) -> Sequence[float]:
        wanted: dict[tuple[int, ...], list[int]] = {}
        for place, pair in enumerate(pairs):
            wanted.setdefault((*pair.context, *pair.said[:-1]), []).append(place)
        found = [math.nan] * len(pairs)
        for rows in batches(list(wanted)):
            for row, logits in zip(rows, forward(rows), strict=True):
                for place in wanted[row]:
                    found[place] = _sum(logits, pairs[place])
        return found

    return likelihoods


def by_target(target: Target) -> Likelihoods:
    """Likelihoods by `score` of a target that has loaded the checkpoint (capability `model`)."""

    def forward(rows: Sequence[Sequence[int]]) -> Iterable[Tensor]:
        (logits,) = float_tensors(target.score(rows).outputs)
        return logits

    return by_logits(forward)


def by_endpoint(target: EndpointTarget) -> Likelihoods:
    """Likelihoods by a server's prompt log-probabilities."""

    def likelihoods(pairs: Sequence[Pair]) -> Sequence[float]:
        found = []
        for pair in pairs:
            ids = [*pair.context, *pair.said]
            positions = target.prompt_logprobs(Prompt(pair.text, ids))
            known = positions[len(pair.context) :] if len(positions) == len(ids) else ()
            found.append(sum(position.logprob for position in known) if known else math.nan)
        return found

    return likelihoods


def batches(rows: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Rows of equal length together, at most 32 at a time: no padding, so no mask that could be wrong."""
    by_length: dict[int, list[tuple[int, ...]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append(row)
    return [
        same[start : start + _ROWS]
        for _, same in sorted(by_length.items())
        for start in range(0, len(same), _ROWS)
    ]


def paired_interval(*, both: int, target_only: int, reference_only: int, neither: int) -> tuple[float, float]:
    """95 % interval on the difference of two proportions of the same questions, target less reference.

    Newcombe's method 10 (Statistics in Medicine 17, 1998, 2635-2650): Wilson's interval of each proportion,
    joined with the correlation of the pairs. Unlike Wald's it neither collapses where the two sides differ on
    no question nor leaves [-1, 1], and unlike McNemar's test it says how large the difference may be.

    Args:
        both: questions that both answer rightly.
        target_only: that the target alone does.
        reference_only: that the reference alone does.
        neither: that nobody does.
    """
    count = both + target_only + reference_only + neither
    theirs, ours = both + target_only, both + reference_only
    (low_t, high_t), (low_r, high_r) = wilson(theirs, count), wilson(ours, count)
    p_t, p_r = theirs / count, ours / count
    phi = _phi(both, target_only, reference_only, neither)
    down = (p_t - low_t) ** 2 - 2 * phi * (p_t - low_t) * (high_r - p_r) + (high_r - p_r) ** 2
    up = (high_t - p_t) ** 2 - 2 * phi * (high_t - p_t) * (p_r - low_r) + (p_r - low_r) ** 2
    difference = (target_only - reference_only) / count
    low, high = difference - math.sqrt(max(down, 0.0)), difference + math.sqrt(max(up, 0.0))
    return max(low, -1.0), min(high, 1.0)


def wilson(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    share = right / count
    centre = share + _Z**2 / (2 * count)
    spread = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    return (centre - spread) / scale, (centre + spread) / scale


def _phi(both: int, target_only: int, reference_only: int, neither: int) -> float:
    """Correlation of the pairs, with Newcombe's correction for continuity where it is positive."""
    count = both + target_only + reference_only + neither
    product = (
        (both + target_only)
        * (reference_only + neither)
        * (both + reference_only)
        * (target_only + neither)
    )  # fmt: skip
    if product == 0:
        return 0.0
    over = both * neither - target_only * reference_only
    corrected = max(over - count / 2, 0.0) if over > 0 else float(over)
    return corrected / math.sqrt(product)


def _sum(logits: Tensor, pair: Pair) -> float:
    """Log-likelihood of the pair's continuation, in fp64."""
    first = len(pair.context) - 1
    rows = logits[first : first + len(pair.said)].double()
    chosen = rows[range(len(pair.said)), list(pair.said)]
    return float((chosen - rows.logsumexp(1)).sum())


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning, leaving at least one token of the other."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return max(1, place)
    return max(1, min(len(one), len(other) - 1))
