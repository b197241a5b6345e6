from __future__ import annotations

import math

import pytest
import torch

from day0.tasks import thresholds
from day0.tasks.numerics.measures.judge import judge, judge_all
from day0.tasks.numerics.measures.metrics import distance

EPS = 2.0**-7


def rounded(reference: torch.Tensor, seed: int) -> torch.Tensor:
    """The reference as another kernel in bf16 gives it: roundings on the way, then that of the output."""
    torch.manual_seed(seed)
    return (reference * (1 + EPS / 4 * torch.randn_like(reference))).bfloat16()


def reference(tokens: int = 200, width: int = 64) -> torch.Tensor:
    torch.manual_seed(99)
    return torch.randn(1, tokens, width)


def test_rounding_is_no_fault() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    for seed in range(2, 12):
        found = judge(distance(rounded(r, seed), r), noise, eps=EPS, routed=False)
        assert found.excess is None
        assert found.applies


def test_one_percent_is_found_by_its_gain_although_relative_l2_is_blind() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    found = judge(distance((rounded(r, 2).float() * 1.01).bfloat16(), r), noise, eps=EPS, routed=False)
    assert found.excess is not None
    assert found.excess.metric == "gain_score"
    assert float(found.metrics.ratio) < 5


def test_an_exact_noise_arm_is_held_to_one_ulp() -> None:
    r = reference().bfloat16().float()
    noise = distance(r.bfloat16(), r)
    assert judge(noise, noise, eps=EPS, routed=False).excess is None
    one_ulp = torch.nextafter(r.bfloat16(), torch.full_like(r, 1e30).bfloat16())
    found = judge(distance((r * 1.01).bfloat16(), r), noise, eps=EPS, routed=False)
    assert found.excess is not None
    few = r.bfloat16().clone()
    few[0, ::50] = one_ulp[0, ::50]
    assert judge(distance(few, r), noise, eps=EPS, routed=False).excess is None


def test_one_wrong_token_is_found() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    t = rounded(r, 2)
    t[0, 77] = 0
    found = judge(distance(t, r), noise, eps=EPS, routed=False)
    assert found.excess is not None
    assert found.excess.metric in ("ratio", "worst_ratio")


def test_the_worst_of_many_tokens_may_be_further_off_where_errors_have_a_long_tail() -> None:
    """Two kernels in fp32 whose tokens' errors are Pareto with exponent 2: neither is wrong."""
    r, factors = reference(tokens=2048), []
    for seed in range(12):
        torch.manual_seed(seed)
        one, other = (
            r.double() + r.double() * 1e-7 * torch.rand(1, 2048, 1, dtype=torch.float64) ** -0.5
            * torch.randn_like(r, dtype=torch.float64)
            for _ in range(2)
        )  # fmt: skip
        found = judge(distance(one, r), distance(other, r), eps=2**-23, routed=False)
        # A channel of so few outliers is another matter, and none was seen.
        assert found.excess is None or found.excess.metric != "worst_ratio"
        factors.append(float(found.metrics.worst_ratio))
    assert max(factors) > thresholds.NUMERICS_WORST_TOKEN


def test_one_wrong_token_of_many_is_found() -> None:
    r = reference(tokens=2048)
    t = rounded(r, 2)
    t[0, 1500] *= 0.9
    found = judge(distance(t, r), distance(rounded(r, 1), r), eps=EPS, routed=False)
    assert found.excess is not None
    assert found.excess.metric == "worst_ratio"


def test_a_few_tokens_routed_otherwise_are_no_fault_and_many_are() -> None:
    r = reference()
    noise_output, t = rounded(r, 1), rounded(r, 2)
    noise_output[0, [3, 50, 120]] *= 1.5
    t[0, [9, 51, 121, 199]] *= 1.5
    noise = distance(noise_output, r)
    found = judge(distance(t, r), noise, eps=EPS, routed=True)
    assert found.excess is None
    assert found.metrics.outliers == 4
    t[0, :40] *= 1.5
    many = judge(distance(t, r), noise, eps=EPS, routed=True)
    assert many.excess is not None
    assert many.excess.metric == "outliers"


def test_elements_that_all_round_the_same_way_are_no_gain_and_one_percent_still_is() -> None:
    cosines = reference().cos().abs() + 0.5
    r = cosines.bfloat16().float() * 1.00123  # the factor is lost in every rounding
    noise_output = r.bfloat16()
    noise_output[0, ::9, 0] = 0.5
    noise = distance(noise_output, r)
    assert abs(float(noise.gains.median())) > 1e-3
    assert judge(noise, noise, eps=EPS, routed=False).excess is None
    assert judge(distance(r, r), noise, eps=EPS, routed=False).excess is None
    for factor in (1.01, 0.99):
        found = judge(distance((r * factor).bfloat16(), r), noise, eps=EPS, routed=False)
        assert found.excess is not None


def test_a_gain_between_zero_and_the_noise_arms_scores_nothing_and_beyond_it_what_is_beyond() -> None:
    r = torch.ones(1, 100, 16)
    noise = distance(r * 1.002, r)
    for factor, beyond in ((1.002, 0.0), (1.001, 0.0), (1.0, 0.0), (1.005, 0.003), (0.998, 0.002)):
        metrics = judge(distance(r * factor, r), noise, eps=EPS, routed=False).metrics
        error = EPS * thresholds.NUMERICS_ROUNDING_ULP / 4 / 10  # 16 elements, 100 tokens
        assert float(metrics.gain) == pytest.approx(factor - 1, abs=1e-6)
        assert float(metrics.gain_score) == pytest.approx(beyond / error, rel=1e-3, abs=1e-2)


def test_a_routed_node_is_still_judged_by_gain() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    found = judge(distance((rounded(r, 2).float() * 1.01).bfloat16(), r), noise, eps=EPS, routed=True)
    assert found.excess is not None


def test_few_tokens_give_no_gain_and_no_alarm() -> None:
    r = reference(tokens=4)
    noise = distance(rounded(r, 1), r)
    found = judge(distance(rounded(r, 2), r), noise, eps=EPS, routed=False)
    assert math.isnan(float(found.metrics.gain_score))
    assert found.excess is None


def test_zeros_pass_only_when_they_are_zeros() -> None:
    zeros = torch.zeros(1, 10, 4)
    noise = distance(zeros, zeros)
    alike = judge(noise, noise, eps=EPS, routed=False)
    assert alike.applies
    assert alike.zero
    found = judge(distance(zeros + 1, zeros), noise, eps=EPS, routed=False)
    assert not found.applies
    assert found.excess is not None
    assert found.excess.metric == "max_abs"


def test_not_finite_is_a_fault() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    t = rounded(r, 2)
    t[0, 5, 5] = math.inf
    found = judge(distance(t, r), noise, eps=EPS, routed=False)
    assert found.excess is not None
    assert found.excess.metric == "nonfinite"
    assert str(found.excess) == "nonfinite 1 is beyond 0"


def test_the_worst_tensor_of_an_output_speaks() -> None:
    r = reference()
    noise = distance(rounded(r, 1), r)
    good, bad = distance(rounded(r, 2), r), distance(rounded(r, 2) * 2, r)
    found = judge_all([good, bad, good], [noise] * 3, eps=EPS, routed=False)
    assert found is not None
    assert found.excess is not None
    assert judge_all([], [], eps=EPS, routed=False) is None
    zero = distance(torch.zeros_like(r), torch.zeros_like(r))
    for parts, said in (([zero], True), ([zero, zero], True), ([zero, noise], False)):
        both = judge_all(parts, parts, eps=EPS, routed=False)
        assert both is not None
        assert both.zero is said
    assert judge_all([good], [], eps=EPS, routed=False) is None


def test_one_wrong_channel_is_found_where_the_tensor_and_its_tokens_are_right() -> None:
    r = reference(width=2048)
    noise = distance(rounded(r, 1), r)
    t = rounded(r, 2)
    t[..., 1234] *= 1.1
    found = judge(distance(t, r), noise, eps=EPS)
    assert found.excess is not None
    assert found.excess.metric == "channel_ratio"
    assert float(found.metrics.ratio) < 2
    for seed in range(3, 9):
        assert judge(distance(rounded(r, seed), r), noise, eps=EPS).excess is None


def test_few_tokens_leave_channels_out() -> None:
    r = reference(tokens=3, width=2048)
    noise = distance(rounded(r, 1), r)
    metrics = judge(distance(rounded(r, 2), r), noise, eps=EPS).metrics
    assert metrics.not_applicable["channel_ratio"] == metrics.not_applicable["gain"] == "too few tokens"
    assert math.isnan(float(metrics.channel_ratio))


def test_tokens_known_to_be_routed_otherwise_are_left_out_and_the_others_are_judged_in_full() -> None:
    r = reference()
    noise_output, t = rounded(r, 1), rounded(r, 2)
    noise_output[0, [3, 50]] *= 1.5
    t[0, 40:90] *= 1.5
    kept = torch.ones(200).bool()
    kept[[3, 50]] = False
    kept[40:90] = False
    noise = distance(noise_output, r, rows=kept)
    assert judge(distance(t, r, rows=kept), noise, eps=EPS, routed=True, kept=kept).excess is None
    t[0, 150] *= 1.1
    t[0, 100:120, 3] *= 1.3
    found = judge(distance(t, r, rows=kept), noise, eps=EPS, routed=True, kept=kept)
    assert found.excess is not None
    assert found.metrics.outliers == 0
    whole = judge(distance(t, r), distance(noise_output, r), eps=EPS, kept=kept)
    assert whole.metrics.rel_l2 == pytest.approx(float(found.metrics.rel_l2), rel=1e-12)
    assert "routed otherwise" in whole.metrics.not_applicable["channel_ratio"]
    nothing = judge(distance(t, r), distance(noise_output, r), eps=EPS, kept=torch.zeros(200).bool())
    assert not nothing.applies
    assert nothing.excess is None


def test_a_mask_is_judged_by_its_places_alone() -> None:
    r = torch.zeros(1, 12, 12).masked_fill(torch.ones(12, 12).triu(1).bool(), -3e38)
    right = distance(r.bfloat16(), r)
    found = judge(right, right, eps=EPS)
    assert found.applies
    assert found.excess is None
    assert set(found.metrics.not_applicable.values()) == {"it holds nothing but a mask"}
    wrong = r.clone()
    wrong[0, 3, 4] = 0
    found = judge(distance(wrong, r), right, eps=EPS)
    assert found.excess is not None
    assert (found.excess.metric, found.excess.value) == ("misplaced", 1)


def test_what_does_not_apply_says_why() -> None:
    constant = torch.ones(1, 10, 4)
    noise = distance(constant, constant)
    assert judge(noise, noise, eps=EPS).metrics.not_applicable == {"centred_cosine": "one side is constant"}
    single = distance(torch.ones(1, 1, 1), torch.ones(1, 1, 1))
    assert judge(single, single, eps=EPS).metrics.not_applicable["cosine"] == "it has a single element"
    zero = distance(constant * 0, constant * 0)
    assert judge(zero, zero, eps=EPS).metrics.not_applicable["ratio"] == "the reference is zero"
    lost = distance(constant * math.nan, constant * math.nan)
    told = judge(lost, lost, eps=EPS).metrics
    assert (told.not_applicable["ratio"], told.max_abs) == ("the reference is not finite", "NaN")
    assert told.not_applicable["max_abs"] == "the reference is not finite"
    bad = constant.clone()
    bad[0, 0, 0] = math.nan
    said = judge(distance(bad, constant), noise, eps=EPS).metrics
    assert said.not_applicable["rel_l2"] == "the target is not finite"
    assert (said.nonfinite, said.nan) == (1, 1)


def test_a_kernel_off_by_one_ulp_in_every_element_is_no_fault() -> None:
    r = reference()
    noise = distance(r.bfloat16(), r)
    side = torch.where(torch.rand(r.shape) < 0.5, -1e30, 1e30).bfloat16()
    other = torch.nextafter(r.bfloat16(), side)
    assert judge(distance(other, r), noise, eps=EPS).excess is None
