from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from day0.tasks.inventory.scan import BLOCK, Tally, scan

# Name, numpy word, codes of 1.0, of NaN, of infinity and of the largest finite number, and that number.
FLOATS: list[tuple[str, str, int, list[int], list[int], int, float]] = [
    ("bf16", "u2", 0x3F80, [0x7FC0, 0xFFFF], [0x7F80, 0xFF80], 0xFF7F, 3.3895313892515355e38),
    ("fp16", "u2", 0x3C00, [0x7E00, 0xFC01], [0x7C00, 0xFC00], 0xFBFF, 65504.0),
    ("fp32", "u4", 0x3F800000, [0x7FC00000], [0xFF800000], 0x7F7FFFFF, 3.4028234663852886e38),
    ("fp64", "u8", 0x3FF << 52, [0x7FF8 << 48], [0x7FF << 52], (0x7FF << 52) - 1, 1.7976931348623157e308),
    ("fp8_e4m3", "u1", 0x38, [0x7F, 0xFF], [], 0xFE, 448.0),
    ("fp8_e5m2", "u1", 0x3C, [0x7D, 0xFF], [0x7C, 0xFC], 0x7B, 57344.0),
    ("fp8_e4m3fnuz", "u1", 0x40, [0x80], [], 0xFF, 240.0),
    ("fp8_e5m2fnuz", "u1", 0x40, [0x80], [], 0x7F, 57344.0),
    ("e8m0", "u1", 127, [0xFF], [], 0xFE, 2.0**127),
]


def bits(kind: str, codes: list[int]) -> memoryview:
    return memoryview(np.array(codes, dtype=np.dtype(f"<{kind}")).tobytes())


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: str(form[0]))
def test_planted_codes_are_counted(form: tuple[str, str, int, list[int], list[int], int, float]) -> None:
    dtype, kind, one, nans, infs, top, value = form
    clean = scan(dtype, bits(kind, [one] * 50))
    assert (clean.nan, clean.inf, clean.max_abs, clean.is_zero) == (0, 0, 1.0, False)
    planted = [one] * (2 * BLOCK + 7)
    for place, code in enumerate([*nans, *infs, top]):
        planted[place * 1000 + 3] = code
    found = scan(dtype, bits(kind, planted))
    assert (found.nan, found.inf, found.max_abs) == (len(nans), len(infs), value)
    assert found.checked == "full"


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: str(form[0]))
def test_zeros_of_both_signs_are_zeros(form: tuple[str, str, int, list[int], list[int], int, float]) -> None:
    dtype, kind = form[0], form[1]
    sign = 1 << (8 * int(kind[1]) - 1)
    codes = [0] * 9 if "fnuz" in dtype else [0, sign] * 5
    found = scan(dtype, bits(kind, codes))
    assert found.is_zero is (dtype != "e8m0")  # a power of two is never zero
    assert not scan(dtype, bits(kind, [0] * 8 + [1])).is_zero


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "fp64"])
def test_magnitudes_are_numpys(dtype: str) -> None:
    kind = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}[dtype]
    chance = np.random.default_rng(3)
    for scale in (1e-7, 1.0, 300.0):
        values = (chance.standard_normal(999) * scale).astype(kind)
        found = scan(dtype, memoryview(values.tobytes()))
        assert found.max_abs == float(np.abs(values).max())
        negative = scan(dtype, memoryview((-np.abs(values)).tobytes()))
        assert negative.max_abs == found.max_abs


@pytest.mark.parametrize(
    ("dtype", "values", "largest"),
    [
        ("int8", [-128, 5], 128.0),
        ("int16", [0, 0], 0.0),
        ("int32", [-(2**31), 0], 2.0**31),
        ("int64", [7, -9], 9.0),
        ("uint8", [255, 0], 255.0),
        ("uint16", [65535], 65535.0),
        ("bool", [0, 1], 1.0),
    ],
)
def test_integers(dtype: str, values: list[int], largest: float) -> None:
    array: Any = np.array(values, dtype=np.uint8 if dtype == "bool" else np.dtype(dtype))
    found = scan(dtype, memoryview(array.tobytes()))
    assert found.max_abs == largest
    assert found.is_zero is (largest == 0)


def test_packed_codes_tell_only_whether_all_are_zero() -> None:
    for dtype in ("fp4_e2m1", "int4", "fp6_e2m3"):
        assert scan(dtype, memoryview(bytes(100))).is_zero
        found = scan(dtype, memoryview(bytes(99) + b"\x10"))
        assert (found.checked, found.is_zero, found.max_abs) == ("zeros", False, 0.0)
    assert scan("fp4_e2m1", memoryview(b"\x88\x80\x08")).is_zero, "negative zero is zero"
    unknown = scan("q4_1", memoryview(bytes(100)))
    assert (unknown.checked, unknown.is_zero) == ("none", False)


def test_pieces_add_up_and_need_no_alignment() -> None:
    values = np.arange(1000, dtype=np.float32)
    values[17] = np.nan
    raw = memoryview(b"x" + values.tobytes())
    whole = scan("fp32", raw[1:])
    parts = Tally("fp32")
    for start in range(1, 4001, 400):
        parts.merge(scan("fp32", raw[start : start + 400]))
    assert parts == whole
    assert (whole.nan, whole.max_abs, whole.seen) == (1, 999.0, 4000)
    assert not math.isnan(whole.max_abs)


def test_nothing_is_not_zero() -> None:
    assert not scan("bf16", memoryview(b"")).is_zero
