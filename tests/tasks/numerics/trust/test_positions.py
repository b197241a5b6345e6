from __future__ import annotations

import math

import pytest
import torch

from day0.tasks.numerics.trust.positions import compare_positions

NAN, INF = math.nan, math.inf


def test_each_position_has_its_own_relative_error() -> None:
    ours = torch.tensor([[3.0, 4.0], [6.0, 8.5], [0.0, 0.0]])
    theirs = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]])
    found = compare_positions(ours, theirs)
    assert found.errors == pytest.approx((0.0, 0.05, 0.0))
    assert (found.one_sided, found.unknown) == (0, 0)


def test_positions_beyond_a_chunk_are_compared() -> None:
    ours = torch.ones(200, 3)
    theirs = ours.clone()
    theirs[150] = 2.0
    found = compare_positions(ours, theirs)
    assert [place for place, error in enumerate(found.errors) if error] == [150]
    assert found.errors[150] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "one_sided", "unknown"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0, 1),
        ([INF, 1.0], [-INF, 1.0], 0, 1),
        ([NAN, 1.0], [INF, 1.0], 0, 1),
        ([NAN, 1.0], [1.0, 1.0], 1, 0),
        ([1.0, 1.0], [-INF, 1.0], 1, 0),
        ([NAN, INF], [NAN, 1.0], 1, 1),
    ],
)
def test_what_is_not_finite_is_counted_by_its_sides(
    ours: list[float], theirs: list[float], one_sided: int, unknown: int
) -> None:
    found = compare_positions(torch.tensor([ours]), torch.tensor([theirs]))
    assert (found.one_sided, found.unknown) == (one_sided, unknown)
    assert found.errors == ((INF,) if one_sided else (0.0,))


def test_words_that_both_sides_mask_are_equal() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 2.0], [3.0, -torch.inf, torch.inf]])
    found = compare_positions(logits, logits)
    assert (found.errors, found.one_sided, found.unknown) == ((0.0, 0.0), 0, 1)
