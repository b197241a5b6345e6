from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

import pytest
import torch

from day0.tasks.numerics.record_parts import TaskMetric
from day0.tasks.numerics.task_metric.task_items import Item
from day0.tasks.numerics.task_metric.task_metric import (
    Likelihoods,
    Pair,
    answers,
    batches,
    by_endpoint,
    by_logits,
    measure_task,
    paired_interval,
    pairs_of,
    task_findings,
    wilson,
)
from support.served import Served, bigram, tokenizer

WORDS = tokenizer()
MODEL = bigram()
TEXTS = ("The sun", "The old stone", "The wind blows cold over green", "The river", "The tall tree")
CHOICES = (" moon", " bird", " town", " house")
ITEMS = [
    Item("bigram", text, CHOICES, int(MODEL(WORDS.encode(text, special=False))[-1, ids].argmax()))
    for ids in [[WORDS.encode(f"The{choice}", special=False)[1] for choice in CHOICES]]
    for text in TEXTS
] * 8


def batched(rows: Sequence[Sequence[int]]) -> Iterable[torch.Tensor]:
    assert len({len(row) for row in rows}) == 1
    return torch.stack([MODEL(row) for row in rows])


def wrong_for(share: float) -> Likelihoods:
    """Likelihoods of a side that prefers the first choice for a share of the questions."""
    right = by_logits(batched)

    def likelihoods(pairs: Sequence[Pair]) -> Sequence[float]:
        found = list(right(pairs))
        for question in range(int(share * len(ITEMS))):
            answer = ITEMS[question].answer
            found[question * len(CHOICES) + answer] = -1e6
        return found

    return likelihoods


def test_a_side_held_against_itself_differs_by_nothing() -> None:
    metric = measure_task(ITEMS, WORDS, by_logits(batched), by_logits(batched))
    assert (metric.items, metric.reference, metric.target, metric.difference) == (40, 1.0, 1.0, 0.0)
    assert float(metric.low) < 0 < float(metric.high)
    assert metric.reason == ""
    assert task_findings(metric, "t") == []


def test_a_side_that_answers_worse_is_told() -> None:
    metric = measure_task(ITEMS, WORDS, by_logits(batched), wrong_for(0.3))
    assert float(metric.difference) == pytest.approx(-0.3)
    assert float(metric.low) < -0.3 < float(metric.high) < 0
    (finding,) = task_findings(metric, "t")
    assert finding.code == "NUM040"
    assert task_findings(measure_task(ITEMS, WORDS, by_logits(batched), wrong_for(0.05)), "t") == []


def test_it_does_not_apply_without_a_tokenizer_or_to_a_reference_that_guesses() -> None:
    def never(pairs: Sequence[Pair]) -> Sequence[float]:
        raise AssertionError("not asked")

    assert measure_task(ITEMS, None, never, never).reason == "the release has no tokenizer.json"
    draw = random.Random(3)
    metric = measure_task(ITEMS, WORDS, lambda pairs: [draw.random() for _ in pairs], never)
    assert "where guessing gives 0.250" in metric.reason
    assert metric.target == "NaN"


def test_a_server_answers_the_same_questions() -> None:
    for style in ("prompt_logprobs", "echo"):
        target = Served(MODEL, style=style).target()
        metric = measure_task(ITEMS[:20], WORDS, by_logits(batched), by_endpoint(target))
        assert (metric.items, metric.difference) == (20, 0.0)


def test_a_server_that_knows_the_likeliest_tokens_only_is_not_judged() -> None:
    target = Served(bigram(spread=9.0), style="shifted").target()
    metric = measure_task(ITEMS[:20], WORDS, by_logits(batched), by_endpoint(target))
    assert "the target gives the likelihood of every choice for only" in metric.reason


def test_likelihoods_are_sums_over_the_continuation() -> None:
    pair = Pair("", [69, 33], [34, 35, 32])
    log = MODEL([69, 33, 34, 35]).double().log_softmax(1)
    expected = float(log[1, 34] + log[2, 35] + log[3, 32])
    (found,) = by_logits(batched)([pair])
    assert found == pytest.approx(expected)


def test_choices_of_one_token_share_a_forward() -> None:
    asked: list[int] = []

    def counted(rows: Sequence[Sequence[int]]) -> Iterable[torch.Tensor]:
        asked.extend(len(row) for row in rows)
        return batched(rows)

    pairs, _ = pairs_of(ITEMS[:5], WORDS)
    by_logits(counted)(pairs)
    assert len(pairs) == 20
    assert len(asked) == 5


def test_a_choice_that_changes_the_last_token_of_its_context_is_read_as_a_whole() -> None:
    pairs, owners = pairs_of([Item("x", "The su", ("n", "m"), 0)], WORDS)  # `Ġsun` is a token, `Ġsum` is none
    assert owners == [(0, 0), (0, 1)]
    assert list(pairs[0].context) == list(pairs[1].context) == [69]
    assert [*pairs[0].context, *pairs[0].said] == list(WORDS.encode("The sun", special=False))


def test_an_unknown_choice_leaves_its_question_out() -> None:
    items = [Item("x", "a", (" b", " c"), 1)] * 3
    owners = [(place, choice) for place in range(3) for choice in range(2)]
    assert answers([-1, -2, -2, -1, -1, math.nan], owners, items) == [False, True, None]


def test_batches_hold_rows_of_one_length() -> None:
    rows = [(1,) * (count % 3 + 1) for count in range(100)]
    made = batches(rows)
    assert sorted(len(batch) for batch in made) == [1, 1, 2, 32, 32, 32]
    assert sorted(row for batch in made for row in batch) == sorted(rows)


def test_wilson_covers_what_it_says() -> None:
    low, high = wilson(8, 10)  # Newcombe 1998, and any statistics package
    assert low == pytest.approx(0.490, abs=5e-4)
    assert high == pytest.approx(0.943, abs=5e-4)
    assert wilson(0, 20)[0] == pytest.approx(0.0, abs=1e-12)


def test_the_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(11)
    for both, target_only, reference_only in ((0.80, 0.03, 0.07), (0.5, 0.1, 0.1), (0.9, 0.0, 0.04)):
        truth, covered = target_only - reference_only, 0
        for _ in range(600):
            seen = draw.choices(
                range(4), (both, target_only, reference_only, 1 - both - target_only - reference_only), k=230
            )
            counts = [seen.count(kind) for kind in range(4)]
            low, high = paired_interval(
                both=counts[0], target_only=counts[1], reference_only=counts[2], neither=counts[3]
            )
            covered += low <= truth <= high
        assert 0.93 <= covered / 600 <= 0.995


def test_the_paired_interval_at_its_ends() -> None:
    low, high = paired_interval(both=230, target_only=0, reference_only=0, neither=0)
    assert -0.03 < low < 0 < high < 0.03
    low, high = paired_interval(both=0, target_only=0, reference_only=230, neither=0)
    assert -1.0 <= low <= -0.97
    assert high < -0.97
    one = paired_interval(both=100, target_only=5, reference_only=15, neither=30)
    other = paired_interval(both=100, target_only=15, reference_only=5, neither=30)
    assert one[0] == pytest.approx(-other[1])
    assert one[1] == pytest.approx(-other[0])


def test_a_metric_that_does_not_apply_is_no_finding() -> None:
    assert task_findings(TaskMetric(reason="none"), "t") == []
