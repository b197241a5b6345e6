"""Accounts of routers, held against sums made by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from day0.tasks.numerics.walk.routing import (
    INVALID,
    NO_MARGINS,
    NO_SCORES,
    Account,
    Choice,
    TopK,
    account,
    forced_weights,
)

TOKENS, EXPERTS, K = 400, 16, 4
SIGMA = 0.004


def chosen(scores: Tensor, k: int = K) -> Choice:
    best = scores.softmax(1).topk(k, 1)
    return Choice(best.indices, best.values / best.values.sum(1, keepdim=True))


def picked(scores: Tensor, k: int) -> TopK:
    return TopK(scores, k)


def logits(seed: int = 0, tokens: int = TOKENS) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(tokens, EXPERTS)


def told(scores: Tensor, target: Choice, *, noise_seed: int = 1, known: bool = True) -> Account:
    torch.manual_seed(noise_seed)
    noisy = scores + SIGMA * torch.randn_like(scores)
    return account(
        "model.layers.0",
        chosen(scores),
        target,
        experts=EXPERTS,
        noise=chosen(noisy),
        reference_scores=[picked(scores, K)] if known else (),
        noise_scores=[picked(noisy, K)] if known else (),
    )


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("factor", [1.0, 2.4])
def test_flips_by_rounding_are_near_ties(known: bool, factor: float) -> None:
    scores = logits(tokens=4000)
    torch.manual_seed(2)
    target = chosen(scores + factor * SIGMA * torch.randn_like(scores))
    found = told(scores, target, known=known)
    ours, theirs = chosen(scores).ids.sort(1).values, target.ids.sort(1).values
    flips = int((ours != theirs).any(1).sum())
    assert flips > 20
    assert (found.facts.flips, found.facts.near_tie, found.facts.unexplained) == (flips, flips, 0)
    assert found.certain is known
    assert found.facts.reason == ("" if known else NO_SCORES)
    assert int((~found.same).sum()) == flips


@pytest.mark.parametrize("known", [True, False])
def test_an_expert_swapped_without_a_tie_is_unexplained(known: bool) -> None:
    scores = logits()
    ours = chosen(scores)
    ids = ours.ids.clone()
    worst = scores.argmin(1)
    ids[:10, 0] = worst[:10]  # the best goes out for the worst
    found = told(scores, Choice(ids, ours.weights), known=known)
    assert found.facts.flips == 10
    assert found.facts.unexplained == 10
    assert found.unexplained.nonzero().flatten().tolist() == list(range(10))


def test_a_tie_at_the_border_does_not_explain_another_swap() -> None:
    scores = logits()
    order = scores.argsort(1, descending=True)
    for slot, near in ((K - 1, True), (0, False)):
        scores[0, order[0, K]] = scores[0, order[0, K - 1]] - SIGMA / 10
        ids = order[:, :K].clone()
        ids[0, slot] = order[0, K]
        found = told(scores, Choice(ids, chosen(scores).weights))
        assert (found.facts.near_tie, found.facts.unexplained) == ((1, 0) if near else (0, 1))


def test_two_swaps_of_which_one_is_no_tie_are_unexplained() -> None:
    scores = logits()
    order = scores.argsort(1, descending=True)
    scores[0, order[0, K]] = scores[0, order[0, K - 1]] - SIGMA / 10
    ids = order[:, :K].clone()
    ids[0, K - 1], ids[0, K - 2] = order[0, K], order[0, -1]
    assert told(scores, Choice(ids, chosen(scores).weights)).facts.unexplained == 1


def test_the_same_experts_in_another_order_are_slots_and_no_flips() -> None:
    scores = logits()
    ours = chosen(scores)
    found = told(scores, Choice(ours.ids.flip(1), ours.weights.flip(1)))
    assert (found.facts.flips, found.facts.slots) == (0, TOKENS)
    assert bool(found.same.all())


def test_padding_is_not_counted() -> None:
    scores = logits()
    target = Choice((chosen(scores).ids + 1) % EXPERTS, chosen(scores).weights)
    rows = torch.zeros(TOKENS).bool()
    rows[:7] = True
    found = account("r", chosen(scores), target, experts=EXPERTS, rows=rows)
    assert (found.facts.tokens, found.facts.flips) == (7, int((~found.same).sum()))
    assert sum(found.facts.load.values()) == 7 * K
    assert found.facts.reason == NO_MARGINS


def test_load_and_imbalance_are_counts() -> None:
    ids = torch.tensor([[0, 1], [0, 2], [0, 3], [0, 1]])
    found = account("r", Choice(ids, torch.ones(4, 2)), Choice(ids, torch.ones(4, 2)), experts=8)
    assert found.facts.load == {"0": 4, "1": 2, "2": 1, "3": 1}
    assert found.facts.imbalance == found.facts.reference_imbalance == 4.0
    assert (found.facts.experts, found.facts.reason) == (8, "")


def test_experts_that_there_are_not_and_experts_named_twice() -> None:
    scores = logits()
    ours = chosen(scores)
    ids = ours.ids.clone()
    ids[0, 0], ids[1, 0], ids[2, 0] = -1, EXPERTS + 1, ids[2, 1]
    found = told(scores, Choice(ids, ours.weights))
    assert found.facts.unexplained == 3
    assert found.facts.reason == INVALID
    with pytest.raises(ValueError, match=r"\[400, 3\]"):
        told(scores, Choice(ids[:, :3], ours.weights))


def grouped(scores: Tensor, groups: int = 4, kept: int = 2) -> tuple[Choice, list[TopK]]:
    """As DeepSeek-V3 routes: groups by the sum of their two best, then experts within these."""
    parts = scores.reshape(len(scores), groups, -1)
    by_group = parts.topk(2, -1).values.sum(-1)
    mask = torch.zeros_like(by_group).scatter_(1, by_group.topk(kept, 1).indices, 1).bool()
    final = scores.masked_fill(~mask.repeat_interleave(parts.shape[2], 1), 0.0)
    best = final.topk(K, 1).indices
    return Choice(best, scores.gather(1, best)), [
        picked(parts, 2),
        picked(by_group, kept),
        picked(final, K),
    ]


def test_group_limited_routers_flip_by_rounding_and_otherwise() -> None:
    torch.manual_seed(4)
    scores = torch.rand(6000, EXPERTS)
    ours, calls = grouped(scores)
    noise, noise_calls = grouped(scores + SIGMA / 4 * torch.randn_like(scores))
    target, _ = grouped(scores + SIGMA / 4 * torch.randn_like(scores))

    def told_of(other: Choice) -> Account:
        return account(
            "r",
            ours,
            other,
            experts=EXPERTS,
            noise=noise,
            reference_scores=calls,
            noise_scores=noise_calls,
        )

    found = told_of(target)
    crossing = _group_set(target, 4) != _group_set(ours, 4)
    assert int(crossing.any(1).sum()) > 5
    assert found.facts.flips == found.facts.near_tie > 20
    # Another number of groups allowed, as a stack that forgets the limit would do.
    unlimited, _ = grouped(scores, kept=4)
    assert told_of(unlimited).facts.unexplained > 1000
    # Groups by their best expert instead of their two best.
    by_best = scores.reshape(6000, 4, 4).amax(2)
    mask = torch.zeros_like(by_best).scatter_(1, by_best.topk(2, 1).indices, 1).bool()
    ids = scores.masked_fill(~mask.repeat_interleave(4, 1), 0.0).topk(K, 1).indices
    assert told_of(Choice(ids, scores.gather(1, ids))).facts.unexplained > 500


def _group_set(choice: Choice, width: int) -> Tensor:
    return torch.zeros(len(choice.ids), 4).bool().scatter_(1, choice.ids // width, True)


def test_forced_weights_are_the_targets_own_where_it_chose_the_expert() -> None:
    reference = Choice(torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0.6, 0.4], [0.7, 0.3]]))
    target = Choice(torch.tensor([[1, 0], [2, 5]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]]))
    assert forced_weights(reference, target).tolist() == [
        pytest.approx([0.55, 0.45]),
        pytest.approx([0.8, 0.3]),
    ]
