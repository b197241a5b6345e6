"""Bus bandwidth as nccl-tests defines it, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.scale.verdicts import TierResult, judge_collectives


def answers(operation: str, world: int, seconds: list[list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "checks": [
                {
                    "name": f"{operation} bf16 500",
                    "operation": operation,
                    "elements": 500,
                    "bytes": 1000,
                    "passed": True,
                    "detail": "",
                    "seconds": seconds[rank],
                }
            ]
        }
        for rank in range(world)
    ]


@pytest.mark.parametrize(
    ("operation", "world", "expected"),
    [
        ("all_reduce", 2, 1000 / 0.5 * 1.0),
        ("all_reduce", 4, 1000 / 0.5 * 1.5),
        ("all_gather", 4, 4000 / 0.5 * 0.75),
        ("reduce_scatter", 4, 1000 / 0.5 * 0.75),
        ("all_to_all", 4, 1000 / 0.5 * 0.75),
        ("broadcast", 4, 1000 / 0.5),
        ("send_recv", 2, 2000 / 0.5),
    ],
)
def test_bus_bandwidth(operation: str, world: int, expected: float) -> None:
    result = TierResult()
    judge_collectives(answers(operation, world, [[0.5] * 3] * world), {500: "x"}, result)
    assert result.bandwidths[0].bus_bytes_per_second == pytest.approx(expected)


def test_the_slowest_rank_of_each_sample_counts() -> None:
    result = TierResult()
    judge_collectives(answers("broadcast", 2, [[0.1, 0.5, 0.2], [0.4, 0.1, 0.3]]), {500: "x"}, result)
    assert result.bandwidths[0].seconds == 0.4  # median of 0.4, 0.5, 0.3


def test_uneven_exchange_has_no_bus_bandwidth() -> None:
    result = TierResult()
    judge_collectives(answers("all_to_all_uneven", 2, [[0.1]] * 2), {500: "x"}, result)
    assert result.bandwidths == []
    assert result.outcome == "passed"
