"""Rounding to lower precisions, against tables of the formats' numbers made from their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.numerics.precision.fake_precision import Scheme, rounded, scale_count, stored_bytes

SCALED = ("fp8_e4m3", "fp8_e5m2", "int8", "int4")
TINY32 = 2.0**-126


def numbers_of(dtype: str) -> np.ndarray:
    """All finite numbers of a format, rising, from its bits."""
    if dtype == "int8":
        return np.arange(-127.0, 128.0)
    if dtype == "int4":
        return np.arange(-8.0, 8.0)
    exponent_bits, mantissa_bits = (4, 3) if dtype == "fp8_e4m3" else (5, 2)
    bias = 2 ** (exponent_bits - 1) - 1
    found = set()
    for exponent, mantissa in itertools.product(range(2**exponent_bits), range(2**mantissa_bits)):
        last = exponent == 2**exponent_bits - 1
        if last and (dtype == "fp8_e5m2" or mantissa == 2**mantissa_bits - 1):
            continue  # infinity and NaN; e4m3 has one NaN and no infinity
        whole = (1 if exponent else 0) + mantissa / 2**mantissa_bits
        value = whole * 2.0 ** (max(exponent, 1) - bias)
        found |= {value, -value}
    return np.array(sorted(found))


def nearest(values: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest number of the format; of two, the one whose last bit is zero."""
    table = numbers_of(dtype)
    even = {value: index for index, value in enumerate(table)}
    middle = even[0.0]
    flat = []
    for value in values.ravel():
        gaps = np.abs(table - value)
        best = np.flatnonzero(gaps == gaps.min())
        flat.append(table[min(best, key=lambda index: (index - middle) % 2)])
    return np.array(flat).reshape(values.shape)


def by_hand(x: np.ndarray, dtype: str, units: Iterator[tuple[slice | int, ...]]) -> np.ndarray:
    """`scale * round(x / scale)` for each unit in turn."""
    span = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "int4": 7.5}[dtype]
    out = np.empty_like(x)
    for unit in units:
        scale = torch.tensor(np.abs(x[unit]).max() / span).float()
        scale = scale.bfloat16().float() if dtype == "int4" else scale
        number = max(float(scale), TINY32)
        out[unit] = nearest(x[unit] / number, dtype) * number
    return out


def units_of(unit: str, shape: tuple[int, int], size: int) -> Iterator[tuple[slice | int, ...]]:
    rows, columns = shape
    if unit == "tensor":
        yield (slice(None), slice(None))
    elif unit == "channel":
        for row in range(rows):
            yield (row, slice(None))
    elif unit == "group":
        for row, start in itertools.product(range(rows), range(0, columns, size)):
            yield (row, slice(start, start + size))
    else:
        for top, left in itertools.product(range(0, rows, 128), range(0, columns, 128)):
            yield (slice(top, top + 128), slice(left, left + 128))


@pytest.mark.parametrize("dtype", SCALED)
@pytest.mark.parametrize(
    ("unit", "size", "shape"),
    [("tensor", 0, (5, 9)), ("channel", 0, (5, 9)), ("group", 32, (3, 70)), ("group", 128, (2, 300)),
     ("block", 0, (130, 131))],
)  # fmt: skip
def test_every_unit_is_rounded_as_its_definition_says(
    dtype: str, unit: str, size: int, shape: tuple[int, int]
) -> None:
    x = np.random.default_rng(7).normal(size=shape) * np.logspace(-2, 2, shape[1])
    scheme = Scheme(dtype, unit, size)
    expected = by_hand(x, dtype, units_of(unit, shape, size))
    assert rounded(torch.tensor(x), scheme).numpy() == pytest.approx(expected, rel=1e-12)
    scales = sum(1 for _ in units_of(unit, shape, size))
    assert scale_count(shape, scheme) == scales
    bits = 4 if dtype == "int4" else 8
    assert stored_bytes(shape, scheme) == math.ceil(x.size * bits / 8) + scales * (2 if bits == 4 else 4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=20), st.sampled_from(SCALED))
def test_errors_stay_within_half_a_step(values: list[float], dtype: str) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    once = rounded(x, Scheme(dtype, "channel"))
    largest = float(x.abs().max())
    # The step next to the format's largest number, over that number; int4's scale is rounded itself.
    half_step = {"fp8_e4m3": 16 / 448, "fp8_e5m2": 4096 / 57344, "int8": 0.5 / 127, "int4": 0.5 / 7.5}[dtype]
    slack = 1.06 if dtype == "int4" else 1 + 1e-6
    assert float((once - x).abs().max()) <= half_step * largest * slack + TINY32
    assert torch.all(once * x >= 0)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_plain_formats_are_cast(dtype: str) -> None:
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    x = torch.tensor([1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-9, 1e5, 65519.0, 65520.0, -math.inf, 0.0, 3e-8])
    found = rounded(x, Scheme(dtype, "cast"))
    assert found.dtype == torch.float32
    assert torch.equal(found, x.to(kind).float())
    if dtype == "fp16":  # half of the smallest subnormal, 2^-25, is where a number begins
        assert found.tolist()[3:] == [math.inf, 65504.0, math.inf, -math.inf, 0.0, 0.0 + 2.0**-24]
    else:
        assert found.tolist()[:3] == [1.0, 1.0, 1 + 2**-7]
    assert scale_count((3, 4), Scheme(dtype, "cast")) == 0
    assert stored_bytes((3, 4), Scheme(dtype, "cast")) == 24


@pytest.mark.parametrize("dtype", SCALED)
def test_zeros_infinities_and_nan(dtype: str) -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, math.inf, -math.inf], [math.nan, 2.0, -1.0], [math.nan] * 3])
    found = rounded(x, Scheme(dtype, "channel"))
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    top, bottom = float(numbers_of(dtype).max()), float(numbers_of(dtype).min())
    span = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "int4": 7.5}[dtype]
    assert found[1].tolist() == pytest.approx([min(1.0, top / span), top / span, bottom / span], rel=1e-2)
    assert math.isnan(found[2, 0])
    assert found[2, 1:].tolist() == pytest.approx([2 * min(1.0, top / span), -1.0], rel=0.1)
    assert found[3].isnan().all()


@pytest.mark.parametrize("dtype", SCALED)
def test_the_smallest_and_the_largest_numbers(dtype: str) -> None:
    channel = Scheme(dtype, "channel")
    tiny = torch.tensor([1e-44, -1e-44])
    assert torch.isfinite(rounded(tiny, channel)).all()
    huge = torch.tensor([3e38, -3e38])
    assert torch.isfinite(rounded(huge, channel)).all()
    beyond = torch.tensor([1e300, 1.0], dtype=torch.float64)
    assert torch.isfinite(rounded(beyond, channel)).all()


def test_the_axis_and_the_experts_have_their_own_scales() -> None:
    torch.manual_seed(0)
    stack = torch.randn(3, 6, 8) * torch.tensor([1.0, 10.0, 100.0]).reshape(3, 1, 1)
    for scheme in (Scheme("int8", "channel"), Scheme("int8", "tensor"), Scheme("fp8_e4m3", "block"),
                   Scheme("int4", "group", 4)):  # fmt: skip
        whole = rounded(stack, scheme)
        for expert in range(3):
            assert torch.equal(whole[expert], rounded(stack[expert], scheme))
    channel = Scheme("int8", "channel")
    assert torch.equal(rounded(stack, channel, 1), rounded(stack.mT, channel).mT)
    assert scale_count((3, 6, 8), channel, 1) == 24
    assert scale_count((3, 6, 8), channel) == 18
    group = Scheme("int4", "group", 4)
    assert torch.equal(rounded(stack, group, 1), rounded(stack.mT.contiguous(), group).mT)
    assert scale_count((3, 6, 8), group, 1) == 3 * 8 * 2
    assert scale_count((3, 300, 130), Scheme("fp8_e4m3", "block")) == 3 * 3 * 2


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1,), (1, 1)])
def test_the_smallest_shapes(shape: tuple[int, ...]) -> None:
    for scheme in (Scheme("int8", "channel"), Scheme("fp8_e5m2", "tensor"), Scheme("int4", "group", 32),
                   Scheme("fp8_e4m3", "block"), Scheme("bf16", "cast")):  # fmt: skip
        x = torch.full(shape, 3.0)
        found = rounded(x, scheme)
        assert found.shape == x.shape
        assert torch.allclose(found, x, rtol=0.08)
        assert scale_count(shape, scheme) == (0 if scheme.unit == "cast" or not x.numel() else 1)


def test_the_argument_stays_as_it_was_and_keeps_its_dtype() -> None:
    x = torch.randn(4, 4).bfloat16()
    before = x.clone()
    assert rounded(x, Scheme("int8", "channel")).dtype == torch.bfloat16
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "wrong",
    [
        ("fp32", "cast", 0),
        ("int8", "cast", 0),
        ("bf16", "channel", 0),
        ("int4", "group", 0),
        ("int8", "channel", 4),
        ("int8", "row", 0),
    ],
)
def test_there_is_no_other_scheme(wrong: tuple[str, str, int]) -> None:
    with pytest.raises(ValueError, match=r"held with|no scheme"):
        Scheme(*wrong)
