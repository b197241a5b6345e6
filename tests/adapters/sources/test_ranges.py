from __future__ import annotations

import random

from day0.adapters.sources.ranges import RangeSet, units


def test_ranges_join_where_they_touch_or_overlap() -> None:
    held = RangeSet([(10, 20), (30, 40), (20, 25), (5, 8)])
    assert list(held) == [(5, 8), (10, 25), (30, 40)]
    held.add(8, 30)
    assert list(held) == [(5, 40)]
    held.add(7, 7)
    assert held.total == 35


def test_what_is_missing_is_what_a_set_of_numbers_says() -> None:
    chance = random.Random(7)
    for _ in range(300):
        held, numbers = RangeSet(), set[int]()
        for _ in range(chance.randrange(12)):
            start = chance.randrange(60)
            stop = start + chance.randrange(15)
            held.add(start, stop)
            numbers |= set(range(start, stop))
        start, stop = sorted((chance.randrange(80), chance.randrange(80)))
        gaps = held.missing(start, stop)
        assert {at for gap in gaps for at in range(*gap)} == set(range(start, stop)) - numbers
        assert held.total == len(numbers)
        assert all(gap[0] < gap[1] for gap in gaps)


def test_units_are_cut_at_multiples() -> None:
    assert list(units(3, 25, 10)) == [(3, 10), (10, 20), (20, 25)]
    assert list(units(10, 10, 10)) == []
