from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.numerics.metrics import count_nonfinite, distance


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), tokens=st.integers(1, 9), width=st.integers(1, 40))
def test_every_measure_is_what_numpy_says(seed: int, tokens: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    r = draw.normal(size=(1, tokens, width)) * 10
    t = r + draw.normal(size=r.shape)
    found = distance(torch.tensor(t), torch.tensor(r))
    assert found.rel_l2 == pytest.approx(np.linalg.norm(t - r) / np.linalg.norm(r), rel=1e-12)
    cosine = (t * r).sum() / np.linalg.norm(t) / np.linalg.norm(r)
    assert found.cosine == pytest.approx(cosine, abs=1e-12)
    if tokens * width > 2:
        assert found.centred_cosine == pytest.approx(np.corrcoef(t.ravel(), r.ravel())[0, 1], abs=1e-9)
    assert found.max_abs == np.abs(t - r).max()
    errors = np.linalg.norm(t - r, axis=2) / np.linalg.norm(r, axis=2)
    assert found.errors.numpy() == pytest.approx(errors.ravel(), rel=1e-12)
    assert found.worst_token == pytest.approx(errors.max(), rel=1e-12)
    gains = (t * r).sum(2) / (r * r).sum(2) - 1
    assert found.gains.numpy() == pytest.approx(gains.ravel(), abs=1e-10)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    r = torch.randn(2, 33, 7)
    t = r + 0.01 * torch.randn(2, 33, 7)
    whole = distance(t, r)
    monkeypatch.setattr("day0.tasks.numerics.metrics._CHUNK_ELEMENTS", 20)
    pieces = distance(t, r)
    assert torch.equal(pieces.errors, whole.errors)
    assert torch.equal(pieces.gains, whole.gains)
    assert (pieces.rel_l2, pieces.max_abs) == (whole.rel_l2, whole.max_abs)
    assert count_nonfinite(torch.full((7, 9), math.nan)) == 63


def test_a_scaled_output_is_a_gain_and_no_change_of_direction() -> None:
    r = torch.randn(1, 20, 8, dtype=torch.float64)
    found = distance(r * 1.01, r)
    assert found.gains.numpy() == pytest.approx(np.full(20, 0.01))
    assert found.cosine == pytest.approx(1.0, abs=1e-12)
    assert found.rel_l2 == pytest.approx(0.01)


def test_what_does_not_apply_is_nan_and_never_good() -> None:
    zeros = torch.zeros(1, 4, 3)
    found = distance(torch.ones(1, 4, 3), zeros)
    assert math.isnan(found.rel_l2)
    assert math.isnan(found.cosine)
    assert math.isnan(found.worst_token)
    assert not found.exact
    assert found.max_abs == 1.0
    constant = distance(torch.ones(1, 4, 3) * 2, torch.ones(1, 4, 3))
    assert math.isnan(constant.centred_cosine)
    assert constant.cosine == pytest.approx(1.0)
    assert distance(zeros, zeros).exact


def test_one_zero_token_does_not_spoil_the_others() -> None:
    r = torch.ones(1, 3, 2)
    r[0, 1] = 0
    found = distance(r * 2, r)
    assert found.errors.isnan().tolist() == [False, True, False]
    assert found.worst_token == pytest.approx(1.0)


def test_nan_of_the_target_shows_and_nan_of_the_reference_is_left_out() -> None:
    r = torch.ones(1, 2, 2)
    t = r.clone()
    t[0, 0, 0] = math.nan
    found = distance(t, r)
    assert found.nonfinite == 1
    assert math.isnan(found.rel_l2)
    assert math.isnan(found.max_abs)
    both = distance(t, t)
    assert (both.nonfinite, both.unknown, both.rel_l2, both.exact) == (0, 1, 0.0, False)


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[1, 2\].*\[1, 3\]"):
        distance(torch.ones(1, 2), torch.ones(1, 3))


def test_the_spread_is_what_rounding_does_to_a_gain() -> None:
    torch.manual_seed(0)
    r = torch.randn(4000, 64, dtype=torch.float64)
    jitter = 1 + 0.001 * torch.randn(4000, 64, dtype=torch.float64)
    found = distance(r * jitter, r)
    assert float(found.gains.std()) == pytest.approx(0.001 * float(found.spreads.mean()), rel=0.05)
