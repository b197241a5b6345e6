from __future__ import annotations

from typing import Any

import pytest

from day0.reports.words import (
    bytes_text,
    count_text,
    gap_text,
    listed,
    number_text,
    percent_text,
    plural,
    seconds_text,
    sentence,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"),
        (1234567.0, "1.23e+6"),
        (3.2e-7, "3.20e-7"),
        (12, "12"),
        (61.4, "61.4"),
        (-0.5, "-0.500"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        (None, "\N{EN DASH}"),
        (0.0, "0"),
    ],
)
def test_number(value: Any, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (269_030_016, "269 MB"),
        (80e9, "80.0 GB"),
        (999_999, "1.00 MB"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert bytes_text(value) == text


def test_counts_shares_times() -> None:
    assert count_text(134_515_008) == "135M"
    assert count_text(671e9) == "671B"
    assert percent_text(0.9999) == ">99.9 %"
    assert percent_text(1.0) == "100 %"
    assert percent_text(0.0001) == "<0.1 %"
    assert percent_text(0.984) == "98.4 %"
    assert seconds_text(0.0021) == "2.10 ms"
    assert seconds_text(125.0) == "2 min 5 s"
    assert gap_text(1 - 3.2e-6) == "3.20e-6"
    assert gap_text(1.0000000001) == "0"
    assert gap_text("NaN") == "NaN"
    assert plural(1, "node") == "1 node"
    assert plural(2000, "node") == "2,000 nodes"
    assert listed(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"
    assert listed(["a", "b"]) == "a and b"
    assert listed([]) == "none"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one node failed", "One node failed."),
        ("model.layers.1 has weights", "model.layers.1 has weights."),
        ("lm_head is off!", "lm_head is off!"),
        ("eager@cpu/bf16: pass", "eager@cpu/bf16: pass."),
        ("decode: the prompt", "Decode: the prompt."),
        ("", ""),
    ],
)
def test_sentences_begin_with_a_capital_unless_a_name_does(text: str, told: str) -> None:
    assert sentence(text) == told
