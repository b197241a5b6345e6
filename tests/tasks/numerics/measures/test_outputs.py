from __future__ import annotations

import math

import pytest
import torch

from day0.tasks.numerics.measures.outputs import choices, compare_logits


def test_equal_logits_agree_in_everything() -> None:
    torch.manual_seed(0)
    logits = torch.randn(70, 50)
    found = compare_logits(logits, logits, logits)
    assert (found.top1, found.top5, found.decisive, found.positions) == (1.0, 1.0, 0, 70)
    assert found.kl == pytest.approx(0.0, abs=1e-12)


def test_shares_and_divergence_by_hand() -> None:
    r = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0, -1.0]] * 2)
    t = r.clone()
    t[0] = torch.tensor([3.0, 4.0, 2.0, 1.0, -1.0, 0.0])
    found = compare_logits(t, r, r)
    p, q = r[0].double().softmax(0), t[0].double().softmax(0)
    assert found.top1 == 0.5
    assert found.top5 == pytest.approx((4 / 5 + 1) / 2)
    assert found.kl == pytest.approx(sum(float(a * math.log(a / b)) for a, b in zip(p, q, strict=True)) / 2)


def test_a_disagreement_is_decisive_only_beyond_rounding() -> None:
    r = torch.tensor([[1.0, 0.9, 0.0, 0.0]])
    t = torch.tensor([[0.9, 1.0, 0.0, 0.0]])
    close = r + torch.tensor([[0.1, -0.1, 0.1, -0.1]])
    assert compare_logits(t, r, close).decisive == 0
    assert compare_logits(t, r, r + 0.001).decisive == 1


def test_choices_are_the_largest() -> None:
    assert choices(torch.tensor([[0.0, 2.0], [3.0, 1.0]]), [1, 0]) == (0, 1)


def test_nan_is_no_agreement_and_nothing_is_said_of_a_reference_that_holds_it() -> None:
    torch.manual_seed(0)
    r = torch.randn(4, 50)
    t = r.clone()
    t[1] = math.nan
    assert compare_logits(t, r, r).top1 == 0.75
    assert compare_logits(t, r, r).top5 == 0.75
    broken = torch.full_like(r, math.nan)
    found = compare_logits(broken, broken, broken)
    assert (found.top1, found.top5, found.kl) == ("NaN", "NaN", "NaN")
    half = r.clone()
    half[2:] = math.nan
    assert compare_logits(half, half, half).top1 == 1.0
