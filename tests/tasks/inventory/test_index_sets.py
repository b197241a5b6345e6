"""Index sets: exact, short, and the same set again when read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.tasks.inventory.index_sets import format_indices, parse_indices


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([0, 1], "0-1"),
        ([0, 1, 2, 4, 5, 6], "0-2,4-6"),
        (range(0, 24, 2), "0-22:2"),
        ([0, 2, 3, 4], "0,2-4"),
        ([*range(21), *range(22, 26)], "0-20,22-25"),
        ([3, 1, 1], "1,3"),
    ],
)
def test_form(indices: list[int], text: str) -> None:
    assert format_indices(indices) == text


@given(st.sets(st.integers(0, 60)))
def test_round_trip(indices: set[int]) -> None:
    assert parse_indices(format_indices(indices)) == tuple(sorted(indices))
