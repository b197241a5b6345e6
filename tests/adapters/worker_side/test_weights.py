from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from day0_worker.stack import StackError
from day0_worker.weights import LazyWeights, described, evaluate, evaluate_into, read_tensor

A = torch.arange(12.0).reshape(4, 3)
B = torch.arange(100.0, 112.0).reshape(4, 3)
VALUES = {"a": A, "b": B, "i": torch.tensor([[1, 2]])}
a, b = {"value": "a"}, {"value": "b"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (a, A),
        ({"stack": [a, b], "dim": 0}, torch.stack([A, B])),
        ({"stack": [a, b], "dim": 1}, torch.stack([A, B], 1)),
        ({"cat": [a, b], "dim": 1}, torch.cat([A, B], 1)),
        ({"cat": [a, b], "dim": -2}, torch.cat([A, B], 0)),
        ({"chunk": a, "index": 1, "of": 3, "dim": 0}, A[2:4]),
        ({"narrow": a, "dim": 1, "start": 1, "length": 2}, A[:, 1:3]),
        ({"transpose": a, "dims": [0, 1]}, A.T),
        ({"reshape": a, "shape": [2, 6]}, A.reshape(2, 6)),
        (
            {"cat": [{"stack": [a, b], "dim": 0}, {"stack": [b, a], "dim": 0}], "dim": 1},
            torch.cat([torch.stack([A, B]), torch.stack([B, A])], 1),
        ),
        ({"transpose": {"stack": [a, b], "dim": 0}, "dims": [1, 2]}, torch.stack([A, B]).transpose(1, 2)),
    ],
)
def test_operations_give_what_torch_gives(expression: Any, expected: torch.Tensor) -> None:
    result = evaluate(expression, VALUES)
    assert torch.equal(result, expected)
    assert result.dtype == expected.dtype
    assert torch.equal(evaluate(expression, VALUES, torch.bfloat16), expected.bfloat16())


@pytest.mark.parametrize("shape", [(5, 7), (4, 8), (1, 1), (3, 9)])
def test_block_scaled_weights_are_dequantised_with_ragged_edges(shape: tuple[int, int]) -> None:
    weight = torch.linspace(-3, 3, shape[0] * shape[1]).reshape(shape).to(torch.float8_e4m3fn)
    scale = torch.rand(-(-shape[0] // 2), -(-shape[1] // 4)) + 0.5
    expression = {
        "dequantize": "fp8_block",
        "weight": {"value": "w"},
        "scale": {"value": "s"},
        "block": [2, 4],
    }
    expected = torch.tensor(
        [
            [float(weight[row, column]) * float(scale[row // 2, column // 4]) for column in range(shape[1])]
            for row in range(shape[0])
        ]
    )
    result = evaluate(expression, {"w": weight, "s": scale})
    assert result.dtype == torch.float32
    assert torch.equal(result, expected)
    assert torch.equal(evaluate({"stack": [expression], "dim": 0}, {"w": weight, "s": scale})[0], expected)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tensors"
    path.write_bytes(b"x" * 5000 + A.numpy().tobytes() + b"y")
    return path


def test_a_leaf_is_read_from_its_place(file: Path) -> None:
    leaf = {"file": str(file), "offset": 5000, "dtype": "fp32", "shape": [4, 3]}
    assert torch.equal(evaluate(leaf, {}), A)
    assert torch.equal(evaluate({"transpose": leaf, "dims": [0, 1]}, {}), A.T)


def test_an_unaligned_leaf_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "unaligned"
    path.write_bytes(b"xyz" + A.numpy().tobytes())
    assert torch.equal(read_tensor(str(path), 3, "fp32", [4, 3]), A)


def test_writing_to_a_leaf_does_not_reach_the_file(file: Path) -> None:
    before = file.read_bytes()
    read_tensor(str(file), 5000, "fp32", [4, 3]).zero_()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("offset", "shape"),
    [
        (5000, [4, 4]),
        (5002, [4, 3]),
        (-4, [1]),
        (0, [-1]),
        (0, [10**15]),
        (10**18, [1]),
        (0, [1.5]),
        (0, [True]),
    ],
)
def test_sizes_that_the_file_cannot_have_are_refused(file: Path, offset: int, shape: list[int]) -> None:
    with pytest.raises(StackError):
        read_tensor(str(file), offset, "fp32", shape)


def test_an_empty_tensor_needs_no_bytes(file: Path) -> None:
    assert read_tensor(str(file), 5000, "fp32", [0, 3]).shape == (0, 3)


@pytest.mark.parametrize(
    "expression",
    [
        {},
        [],
        {"value": "missing"},
        {"stack": [], "dim": 0},
        {"stack": [a, {"value": "i"}], "dim": 0},
        {"cat": [a, {"value": "i"}], "dim": 0},
        {"cat": [a], "dim": 9},
        {"dequantize": "int4", "weight": a, "scale": b, "block": [2, 2]},
        {"dequantize": "fp8_block", "weight": a, "scale": b, "block": [2, 2]},
        {"reshape": a, "shape": [5, 5]},
        {"file": "x", "offset": 0},
    ],
)
def test_malformed_expressions_are_refused(expression: Any) -> None:
    with pytest.raises(StackError):
        evaluate(expression, VALUES)


def test_endless_nesting_is_refused() -> None:
    expression: Any = a
    for _ in range(40):
        expression = {"transpose": expression, "dims": [0, 1]}
    with pytest.raises(StackError, match="deep"):
        evaluate(expression, VALUES)


def test_a_result_can_be_filled_into_a_tensor_that_is_there() -> None:
    out = torch.empty(3, 4, dtype=torch.bfloat16)
    evaluate_into([out.t()], a, VALUES)
    assert torch.equal(out.t(), A.bfloat16())
    with pytest.raises(StackError, match="are needed"):
        evaluate_into([torch.empty(4, 3), torch.empty(3, 4)], a, VALUES)


@pytest.mark.parametrize(
    "expression",
    [
        a,
        {"stack": [a, b], "dim": 1},
        {"cat": [a, b], "dim": 1},
        {"transpose": {"stack": [a, b], "dim": 0}, "dims": [1, 2]},
        {"narrow": a, "dim": 1, "start": 1, "length": 2},
        {"chunk": a, "index": 1, "of": 2, "dim": 0},
        {"reshape": a, "shape": [2, 6]},
    ],
)
def test_several_dtypes_are_filled_in_one_go(expression: Any) -> None:
    shape, dtype = described(expression, VALUES)
    wide, half = torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=torch.bfloat16)
    evaluate_into([wide, half], expression, VALUES)
    assert torch.equal(wide, evaluate(expression, VALUES))
    assert torch.equal(half, wide.bfloat16())


def test_shape_and_dtype_are_known_without_reading(tmp_path: Path) -> None:
    leaf = {"file": str(tmp_path / "absent"), "offset": 0, "dtype": "fp8_e4m3", "shape": [6, 8]}
    scale = {"file": str(tmp_path / "absent"), "offset": 0, "dtype": "fp32", "shape": [3, 2]}
    expression = {"dequantize": "fp8_block", "weight": leaf, "scale": scale, "block": [2, 4]}
    assert described({"transpose": leaf, "dims": [0, 1]}, {}) == ([8, 6], torch.float8_e4m3fn)
    assert described({"stack": [expression, expression], "dim": 0}, {}) == ([2, 6, 8], torch.float32)


def test_lazy_weights_are_made_at_each_access_and_not_kept() -> None:
    weights = LazyWeights({"x": {"stack": [a, b], "dim": 0}, "y": a, "bad": {}}, VALUES)
    assert list(weights) == ["x", "y", "bad"]
    assert "x" in weights
    first, second = weights["x"], weights["x"]
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()
    with pytest.raises(StackError, match="malformed"):
        dict(weights)
    with pytest.raises(KeyError):
        weights["z"]
