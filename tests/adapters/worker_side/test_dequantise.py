"""Each scheme against its definition, element by element in numpy or by the scheme's own library."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from day0_worker.stack import StackError
from day0_worker.weights import evaluate, evaluate_into

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def of(**tensors: torch.Tensor) -> dict[str, Any]:
    return {name: {"value": name} for name in tensors}


def result(scheme: str, keys: dict[str, Any], **tensors: torch.Tensor) -> torch.Tensor:
    found = evaluate({"dequantize": scheme, **keys, **of(**tensors)}, tensors)
    assert found.dtype == torch.float32
    return found


def same(found: torch.Tensor, expected: Any) -> bool:
    """Bit for bit but for the payload of NaN."""
    wanted = torch.as_tensor(np.asarray(expected, dtype=np.float32)).reshape(found.shape)
    return torch.equal(found.nan_to_num(nan=7e33), wanted.nan_to_num(nan=7e33))


def spread(grid: np.ndarray, block: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    whole = np.repeat(np.repeat(grid, block[0], axis=-2), block[1], axis=-1)
    return whole[..., : shape[-2], : shape[-1]]


def all_octets(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Bytes in which each of the 256 values occurs where there is room."""
    counted = torch.arange(rows * columns) * 97 + seed
    return (counted % 256).to(torch.uint8).reshape(rows, columns)


def fp8_values(octets: np.ndarray, exponent: int, mantissa: int, bias: int, ieee: bool) -> np.ndarray:
    sign = np.where(octets >> 7, -1.0, 1.0)
    high = (octets >> mantissa) & (2**exponent - 1)
    low = (octets & (2**mantissa - 1)) / 2**mantissa
    value = np.where(high == 0, low * 2.0 ** (1 - bias), (1 + low) * 2.0 ** (high.astype(float) - bias))
    top = high == 2**exponent - 1
    if ieee:
        value = np.where(top, np.where(low == 0, np.inf, np.nan), value)
    else:
        value = np.where(top & (low == (2**mantissa - 1) / 2**mantissa), np.nan, value)
    return sign * value


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [(torch.float8_e4m3fn, (4, 3, 7, False)), (torch.float8_e5m2, (5, 2, 15, True))],
    ids=["e4m3", "e5m2"],
)
@pytest.mark.parametrize("block", [[128, 128], [16, 32], [1, 320], [300, 320], [7, 11], [1, 32], [300, 1]])
@pytest.mark.parametrize("scaled", [1.0, 1e-38, 2.0**125])
def test_fp8_is_the_stored_number_times_the_scale_of_its_block(
    dtype: torch.dtype, layout: tuple[int, int, int, bool], block: list[int], scaled: float
) -> None:
    octets = all_octets(300, 320)
    grid = (-(-300 // block[0]), -(-320 // block[1]))
    scale = (torch.rand(grid) + 0.5) * scaled
    with np.errstate(over="ignore"):
        numbers = fp8_values(octets.numpy(), *layout).astype(np.float32)
        expected = numbers * spread(scale.numpy(), block, (300, 320))
    found = result("fp8_block", {"block": block}, weight=octets.view(dtype), scale=scale)
    assert same(found, expected)


@pytest.mark.parametrize("columns", [1, 3, 31_999, 270_001, 800_001])
def test_rows_of_any_width_are_cut_into_tiles(columns: int) -> None:
    octets = all_octets(5, columns).clamp(max=0x7E)
    scale = torch.rand(1, -(-columns // 128)) + 0.5
    expected = fp8_values(octets.numpy(), 4, 3, 7, False).astype(np.float32)
    expected *= spread(scale.numpy(), [128, 128], expected.shape)
    found = result("fp8_block", {"block": [128, 128]}, weight=octets.view(torch.float8_e4m3fn), scale=scale)
    assert same(found, expected)


@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1), (300,), (300, 1), (1, 320)], ids=["0", "1", "1x1", "r", "rx1", "1xc"]
)
def test_one_scale_for_all_a_row_or_a_column(shape: tuple[int, ...]) -> None:
    weight = all_octets(300, 320).clamp(max=0x7E).view(torch.float8_e4m3fn)
    scale = torch.rand(shape) + 0.5
    block = {1: [300, 320], 300: [1, 320], 320: [300, 1]}[scale.numel()]
    wide = scale.reshape(-1, 1) if shape == (300,) else scale
    assert torch.equal(
        result("fp8_block", {"block": block}, weight=weight, scale=scale), weight.float() * wide
    )


def test_experts_have_scales_of_their_own() -> None:
    weight = torch.randn(3, 40, 70).to(torch.float8_e4m3fn)
    scale = torch.rand(3, 3, 3) + 0.5
    expected = weight.float().numpy() * spread(scale.numpy(), [16, 32], (40, 70))
    found = result("fp8_block", {"block": [16, 32]}, weight=weight, scale=scale)
    assert same(found, expected)
    one = torch.rand(3, 1, 1) + 0.5
    assert torch.equal(
        result("fp8_block", {"block": [40, 70]}, weight=weight, scale=one), weight.float() * one
    )
    assert torch.equal(
        result("fp8_block", {"block": [40, 70]}, weight=weight, scale=one.reshape(3)), weight.float() * one
    )


def test_scales_of_powers_of_two_are_read_as_such() -> None:
    weight = torch.randn(32, 64).to(torch.float8_e4m3fn)
    exponents = torch.tensor([[120, 130]], dtype=torch.uint8)
    found = result(
        "fp8_block", {"block": [32, 32]}, weight=weight, scale=exponents.view(torch.float8_e8m0fnu)
    )
    expected = weight.float() * torch.tensor([2.0**-7, 2.0**3]).repeat_interleave(32)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_are_the_fp32_result_rounded(dtype: torch.dtype) -> None:
    tensors = {"weight": torch.randn(130, 260).to(torch.float8_e4m3fn), "scale": torch.rand(2, 3) + 0.5}
    expression = {"dequantize": "fp8_block", "block": [128, 128], **of(**tensors)}
    assert torch.equal(evaluate(expression, tensors, dtype), evaluate(expression, tensors).to(dtype))


@pytest.mark.parametrize("zero", [False, True])
def test_int8_with_a_scale_for_each_row(zero: bool) -> None:
    weight = all_octets(40, 50).view(torch.int8)
    scale, shift = (torch.rand(40, 1) + 0.5).bfloat16(), torch.randint(-20, 20, (40, 1), dtype=torch.int8)
    more = {"zero_point": shift} if zero else {}
    found = result("int8_block", {"block": [1, 50]}, weight=weight, scale=scale, **more)
    numbers = weight.float() - (shift.float() if zero else 0)
    assert torch.equal(found, numbers * scale.float())


def packed(numbers: np.ndarray, bits: int) -> torch.Tensor:
    """Unsigned numbers along the last dimension in int32 words, lowest bits first."""
    per_word = 32 // bits
    filled = np.zeros((*numbers.shape[:-1], -(-numbers.shape[-1] // per_word) * per_word), np.uint64)
    filled[..., : numbers.shape[-1]] = numbers
    places = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    words = (filled.reshape(*filled.shape[:-1], -1, per_word) << places).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("columns", [256, 250])
@pytest.mark.parametrize("zero", ["none", "packed", "plain"])
def test_packed_integers_are_offset_and_scaled_by_group(bits: int, columns: int, zero: str) -> None:
    random = np.random.default_rng(bits)
    numbers = random.integers(0, 2**bits, (3, 44, columns))
    scale = torch.rand(3, 44, -(-columns // 32)) + 0.5
    shift = random.integers(0, 2**bits, (3, 44, scale.shape[-1])) if zero != "none" else None
    more = {"stored_shape": torch.tensor([44, columns], dtype=torch.int32)}
    centred = numbers - 2 ** (bits - 1)
    if shift is not None:
        stored = shift - 2 ** (bits - 1)
        along = packed(shift.swapaxes(1, 2), bits).transpose(1, 2)
        more["zero_point"] = along if zero == "packed" else torch.from_numpy(stored.astype(np.int8))
        centred = centred - spread(stored, [1, 32], (44, columns))
    keys = {"bits": bits, "columns": columns, "group": 32}
    found = result("int_packed", keys, weight=packed(numbers, bits), scale=scale, **more)
    assert same(found, centred.astype(np.float32) * spread(scale.numpy(), [1, 32], (44, columns)))


def test_a_stored_shape_that_contradicts_the_words_is_refused() -> None:
    weight, shape = torch.zeros(4, 4, dtype=torch.int32), torch.tensor([4, 31])
    with pytest.raises(StackError, match="stored shape"):
        result(
            "int_packed",
            {"bits": 4, "columns": 32, "group": 32},
            weight=weight,
            scale=torch.ones(4, 1),
            stored_shape=shape,
        )


def test_mxfp4_is_what_transformers_makes_of_it() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks = all_octets(3 * 70, 5 * 16).reshape(3, 70, 5, 16)
    scales = (torch.arange(3 * 70 * 5) % 60 + 100).to(torch.uint8).reshape(3, 70, 5)
    stock = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    tensors = {"weight": blocks, "scale": scales}
    inner = {"dequantize": "mxfp4", **of(**tensors)}
    turned = {"transpose": inner, "dims": [1, 2]}
    assert torch.equal(evaluate(turned, tensors), stock)
    assert torch.equal(evaluate(inner, tensors), stock.transpose(1, 2))
    assert torch.equal(evaluate(turned, tensors, torch.bfloat16), stock.bfloat16())
    flat = {"weight": blocks.flatten(2), "scale": scales}
    assert torch.equal(evaluate({"dequantize": "mxfp4", **of(**flat)}, flat), stock.transpose(1, 2))


def test_mxfp4_counts_its_halves_from_the_lower_one() -> None:
    octets = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    scale = torch.full((16, 1), 128, dtype=torch.uint8)
    halves = np.stack([octets.numpy() & 15, octets.numpy() >> 4], -1).reshape(16, 32)
    expected = np.where(halves & 8, -1.0, 1.0) * np.array(E2M1)[halves & 7] * 2
    assert same(result("mxfp4", {}, weight=octets, scale=scale), expected)
    signed = result("mxfp4", {}, weight=octets.view(torch.int8), scale=scale.view(torch.float8_e8m0fnu))
    assert same(signed, expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("plus_one", [False, True])
def test_gptq_unpacks_along_the_input_and_turns(bits: int, ordered: bool, plus_one: bool) -> None:
    random = np.random.default_rng(bits)
    rows, columns, group = 96, 64, 32  # input, output
    numbers = random.integers(0, 2**bits, (rows, columns))
    zero = random.integers(1, 2**bits - (not plus_one), (rows // group, columns))
    scale = torch.from_numpy(random.random((rows // group, columns)).astype(np.float16))
    index = random.integers(0, rows // group, rows) if ordered else np.arange(rows) // group
    more = {"groups": torch.from_numpy(index.astype(np.int32))} if ordered else {}
    found = result(
        "gptq",
        {"bits": bits, "group": group, "plus_one": plus_one},
        weight=packed(numbers.T, bits).t().contiguous(),
        scale=scale,
        zero_point=packed(zero - plus_one, bits),
        **more,
    )
    expected = (numbers - zero[index]).astype(np.float32) * scale.float().numpy()[index]
    assert same(found, expected.T)


def test_awq_unpacks_along_the_output_in_its_own_order() -> None:
    random = np.random.default_rng(5)
    rows, columns, group = 96, 64, 32
    numbers = random.integers(0, 16, (rows, columns))
    zero = random.integers(0, 16, (rows // group, columns))
    scale = torch.from_numpy(random.random((rows // group, columns)).astype(np.float16))
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])

    def stored(values: np.ndarray) -> torch.Tensor:
        return packed(values.reshape(len(values), -1, 8)[:, :, order].reshape(len(values), -1), 4)

    keys = {"group": group}
    found = result("awq", keys, weight=stored(numbers), scale=scale, zero_point=stored(zero))
    index = np.arange(rows) // group
    assert same(found, ((numbers - zero[index]).astype(np.float32) * scale.float().numpy()[index]).T)


def test_several_threads_give_what_one_gives() -> None:
    tensors = {"weight": torch.randn(700, 1100).to(torch.float8_e4m3fn), "scale": torch.rand(6, 9) + 0.5}
    expression = {"dequantize": "fp8_block", "block": [128, 128], **of(**tensors)}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = evaluate(expression, tensors)
        torch.set_num_threads(3)
        assert torch.equal(evaluate(expression, tensors), alone)
    finally:
        torch.set_num_threads(before)
    for place in (torch.empty(700, 1100), torch.empty(1100, 700).t()):
        beside = torch.empty_like(place, dtype=torch.bfloat16)
        evaluate_into([place, beside], expression, tensors)
        assert torch.equal(place, alone)
        assert torch.equal(beside, alone.bfloat16())


def test_callers_in_threads_of_their_own_do_not_share_memory() -> None:
    """Each of six makes another matrix, of other shapes and schemes, a hundred times at once."""
    tasks = []
    for number, scheme in enumerate(("fp8_block", "mxfp4", "int8_block") * 2):
        rows, columns = 200 + 40 * number, 128 * (number + 2)
        weight: torch.Tensor = torch.randint(0, 127, (rows, columns), dtype=torch.int8)
        keys: dict[str, Any] = {"block": [1, columns]}
        scale = torch.rand(rows, 1) + 0.5
        if scheme == "fp8_block":
            weight = (weight - 1).clamp(0).view(torch.float8_e4m3fn)
        elif scheme == "mxfp4":
            weight, keys = weight.view(torch.uint8).view(rows, -1, 16), {}
            scale = torch.randint(120, 130, weight.shape[:2], dtype=torch.uint8)
        parts = {"weight": weight, "scale": scale}
        tasks.append(({"dequantize": scheme, **keys, **of(**parts)}, parts))
    alone = [evaluate(*task).clone() for task in tasks]
    with ThreadPoolExecutor(len(tasks)) as pool:
        again = pool.map(lambda task: [evaluate(*task) for _ in range(100)], tasks)
        for expected, found in zip(alone, again, strict=True):
            assert all(torch.equal(one, expected) for one in found)


def bad(scheme: str, **more: Any) -> Any:
    return {"dequantize": scheme, **more}


WORDS = torch.zeros(8, 4, dtype=torch.int32)
VALUES = {
    "words": WORDS,
    "turned": torch.zeros(1, 8, dtype=torch.int32),
    "fp8": torch.zeros(8, 32).to(torch.float8_e4m3fn),
    "float": torch.zeros(8, 32),
    "ones": torch.ones(8, 1),
    "grid": torch.ones(2, 1),
    "bytes": torch.zeros(8, 16, dtype=torch.uint8),
    "zeros": torch.zeros(1, 1, dtype=torch.int32),
    "wrapped": torch.full((1, 1), -1, dtype=torch.int32),
    "row": torch.ones(1, 8),
    "far": torch.full((8,), 4, dtype=torch.int32),
}


def named(**names: str) -> dict[str, Any]:
    return {key: {"value": name} for key, name in names.items()}


@pytest.mark.parametrize(
    "expression",
    [
        bad("fp8_block", block=[4, 32], **named(weight="float", scale="grid")),
        bad("fp8_block", block=[2, 32], **named(weight="fp8", scale="grid")),
        bad("fp8_block", block=[0, 32], **named(weight="fp8", scale="grid")),
        bad("fp8_block", block=[4], **named(weight="fp8", scale="grid")),
        bad("int_packed", bits=3, columns=32, group=32, **named(weight="words", scale="ones")),
        bad("int_packed", bits=4, columns=40, group=32, **named(weight="words", scale="ones")),
        bad("int_packed", bits=4, columns=32, group=32, **named(weight="bytes", scale="ones")),
        bad("int_packed", bits=4, columns=32, group=0, **named(weight="words", scale="ones")),
        bad("mxfp4", **named(weight="float", scale="ones")),
        bad("mxfp4", **named(weight="bytes", scale="grid")),
        bad(
            "gptq", bits=4, group=8, plus_one=True, **named(weight="zeros", scale="row", zero_point="wrapped")
        ),
        bad(
            "gptq",
            bits=4,
            group=8,
            plus_one=True,
            **named(weight="turned", scale="row", zero_point="zeros", groups="far"),
        ),
        bad("awq", group=8, **named(weight="words", scale="row", zero_point="zeros")),
        bad("nf4", **named(weight="bytes", scale="ones")),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(expression: Any) -> None:
    with pytest.raises(StackError, match="malformed"):
        evaluate(expression, VALUES)
