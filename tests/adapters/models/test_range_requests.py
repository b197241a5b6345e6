from __future__ import annotations

from day0.adapters.models.range_requests import UNIT, requests


def test_neighbouring_ranges_are_one_request_and_large_ones_several() -> None:
    unit = UNIT
    keys = [("a", 0, 10), ("a", 10, 990), ("a", 1015, 10), ("a", 2000, 10), ("a", 90_000, unit + 5)]
    keys += [("b", 0, 3), ("b", 10_000, 400_000), ("b", 414_000, 1)]
    found = [(file, start, [piece[1:] for piece in pieces]) for file, start, pieces in requests(keys)]
    assert found == [
        ("a", 0, [(0, 10), (0, 990), (0, 15), (0, 10)]),
        ("a", 2000, [(0, 10)]),
        ("a", 90_000, [(0, unit)]),
        ("a", 90_000 + unit, [(unit, unit + 5)]),
        ("b", 0, [(0, 3)]),
        ("b", 10_000, [(0, 400_000), (0, 4000), (0, 1)]),
    ]
