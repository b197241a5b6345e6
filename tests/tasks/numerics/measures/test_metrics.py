from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.numerics.measures import metrics
from day0.tasks.numerics.measures.metrics import MetricError, count_nonfinite, distance, headroom


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
    monkeypatch.setattr("day0.tasks.numerics.measures.metrics._CHUNK_ELEMENTS", 20)
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


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), tokens=st.integers(1, 30), width=st.integers(1, 9))
def test_channels_are_what_numpy_says(seed: int, tokens: int, width: int) -> None:
    draw = np.random.default_rng(seed)
    r = draw.normal(size=(1, tokens, width))
    r[..., 0] *= draw.integers(0, 2)
    t = r + draw.normal(size=r.shape)
    found = distance(torch.tensor(t), torch.tensor(r))
    with np.errstate(divide="ignore"):
        expected = np.linalg.norm((t - r)[0], axis=0) / np.linalg.norm(r[0], axis=0)
    known = np.isfinite(expected)
    assert found.channels.isnan().tolist() == (~known).tolist()
    assert found.channels.numpy()[known] == pytest.approx(expected[known], rel=1e-12)
    if known.any():
        assert found.worst_channel == pytest.approx(expected[known].max(), rel=1e-12)


def test_tokens_left_out_change_nothing_but_themselves() -> None:
    torch.manual_seed(1)
    r = torch.randn(2, 5, 7)
    t = r + 0.1 * torch.randn(2, 5, 7)
    rows = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]).bool()
    spoilt = t.clone()
    spoilt[~rows] = math.nan
    found, plain = distance(spoilt, r, rows=rows), distance(t[rows], r[rows])
    for name in ("rel_l2", "cosine", "centred_cosine", "max_abs", "scale", "ulp", "nonfinite", "worst_token"):
        assert getattr(found, name) == getattr(plain, name)
    assert torch.equal(found.channels, plain.channels)
    assert torch.equal(found.errors[rows.reshape(-1)], plain.errors)
    assert bool(found.errors[~rows.reshape(-1)].isnan().all())
    assert found.tokens == 6
    with pytest.raises(ValueError, match="9 tokens"):
        distance(t, r, rows=torch.ones(9).bool())
    nothing = distance(t, r, rows=torch.zeros(10).bool())
    assert (nothing.tokens, nothing.exact) == (0, True)
    assert math.isnan(nothing.rel_l2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_errors_in_units_in_the_last_place(dtype: torch.dtype) -> None:
    r = torch.linspace(1.0, 300.0, 64).to(dtype)
    up = torch.nextafter(r, torch.full_like(r, 1e4))
    assert distance(up, r).ulp == 1.0
    assert distance(torch.nextafter(up, torch.full_like(r, 1e4)).double(), r, dtype=dtype).ulp == 2.0
    assert distance(r, r).ulp == 0.0
    small = torch.full((4,), 3.0).mul(torch.finfo(dtype).smallest_normal).mul(2.0**-6).to(dtype)
    if dtype is torch.float16:  # fp32's own subnormal numbers are nothing that fp32 arithmetic can show
        assert distance(torch.nextafter(small, torch.ones_like(small)), small).ulp == 1.0


def test_the_quantile_in_ulp_over_chunks_is_the_exact_one_and_zeros_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "_CHUNK_ELEMENTS", 1000)
    torch.manual_seed(3)
    r = torch.randn(500, 50, dtype=torch.float64)
    t = r + 1e-3 * torch.randn_like(r)
    ulps = (t - r).abs() / torch.exp2(torch.floor(torch.log2(r.abs()))) / torch.finfo(torch.bfloat16).eps
    expected = float(ulps.reshape(-1).sort(descending=True).values[int(ulps.numel() / 1000)])
    assert distance(t, r, dtype=torch.bfloat16).ulp == pytest.approx(expected, rel=1e-6)
    t[:, :25], r[:, :25] = 1.0, 0.0
    half = ulps[:, 25:].reshape(-1).sort(descending=True).values
    found = distance(t, r, dtype=torch.bfloat16).ulp
    assert found == pytest.approx(float(half[int(half.numel() / 1000)]), rel=1e-6)
    assert math.isnan(distance(torch.ones(3), torch.zeros(3)).ulp)


def test_a_mask_is_known_as_one() -> None:
    lowest = torch.finfo(torch.float32).min
    r = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), lowest)
    low = r.clamp_min(torch.finfo(torch.bfloat16).min).bfloat16()
    assert (distance(low, r).masked, distance(low, r).misplaced) == (True, 0)
    other = low.clone()
    other[0, 1], other[3, 0] = 0, -math.inf
    assert distance(other, r).misplaced == 2
    infinite = r.masked_fill(r < 0, -math.inf)
    assert (distance(infinite, infinite).masked, distance(infinite, infinite).misplaced) == (True, 0)
    assert not distance(torch.zeros(4, 4), torch.zeros(4, 4)).masked
    assert not distance(low, r + 1).masked


def test_nan_and_infinity_are_counted_apart() -> None:
    r = torch.ones(1, 2, 3)
    t = r.clone()
    t[0, 0] = torch.tensor([math.nan, math.inf, -math.inf])
    assert (distance(t, r).nonfinite, distance(t, r).nan) == (3, 1)


def test_a_cosine_stays_right_far_from_zero_and_an_impossible_one_is_our_own_error() -> None:
    torch.manual_seed(2)
    draw = torch.randn(64, 64, dtype=torch.float64)
    r, t = 1e5 + draw, 3e4 + 0.5 * draw
    assert distance(t, r).centred_cosine == pytest.approx(1.0, abs=1e-12)
    for scale in (1e-4, 1e-5):
        assert abs(distance(1 + scale * draw, draw).centred_cosine - 1) < 1e-9
    with pytest.raises(MetricError, match="cosine"):
        metrics._cosine("cosine", torch.tensor(1.03), torch.tensor(1.0), torch.tensor(1.0))


def test_headroom() -> None:
    assert headroom(65504.0, torch.float16) == 1.0
    assert headroom(1.0, torch.bfloat16) < 1e-38
