from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.models.expert_slices import compacted
from day0_worker.dtypes import short_dtype
from day0_worker.weights import evaluate

EXPERTS, ROWS, COLUMNS = 6, 4, 32
IDS = [[0], [5], [1, 2, 3], [4, 0, 5], [0, 1, 3, 4, 2]]


class Files:
    """Writes each tensor to a file of its own, some bytes in."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def leaf(self, tensor: torch.Tensor) -> dict[str, Any]:
        path = self._folder / str(self._count)
        self._count += 1
        path.write_bytes(b"x" * 64 + bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
        return {
            "file": str(path),
            "offset": 64,
            "dtype": short_dtype(tensor.dtype),
            "shape": list(tensor.shape),
        }


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def expressions(files: Files) -> Iterator[tuple[str, Any]]:
    each = [files.leaf(numbers(ROWS, COLUMNS)) for _ in range(EXPERTS)]
    other = [files.leaf(numbers(ROWS, COLUMNS)) for _ in range(EXPERTS)]
    stacked = files.leaf(numbers(EXPERTS, ROWS, COLUMNS))
    yield "leaf", stacked
    yield "bias", files.leaf(numbers(EXPERTS, ROWS))
    yield "stack", {"stack": each, "dim": 0}
    yield "negative", {"transpose": {"stack": each, "dim": -3}, "dims": [-1, 1]}
    yield "cat", {"cat": [{"stack": each, "dim": 0}, {"stack": other, "dim": 0}], "dim": 1}
    yield "narrow", {"narrow": stacked, "dim": 1, "start": 1, "length": 2}
    yield "chunk", {"chunk": stacked, "index": 1, "of": 2, "dim": 2}
    yield "transpose", {"transpose": stacked, "dims": [1, 2]}
    yield "across", {"transpose": {"stack": each, "dim": 1}, "dims": [0, 1]}
    yield "reshape", {"reshape": stacked, "shape": [EXPERTS, 2, ROWS // 2, COLUMNS]}
    interleaved = {"transpose": {"reshape": stacked, "shape": [EXPERTS, 2, 2, COLUMNS]}, "dims": [1, 2]}
    yield "interleaved", {"reshape": interleaved, "shape": [EXPERTS, ROWS, COLUMNS]}
    weight = torch.randn(EXPERTS, ROWS, COLUMNS).to(torch.float8_e4m3fn)
    fp8 = {"dequantize": "fp8_block", "weight": files.leaf(weight), "block": [2, 16]}
    yield "fp8", {**fp8, "scale": files.leaf(torch.rand(EXPERTS, 2, 2))}
    yield "fp8 one scale", {**fp8, "block": [ROWS, COLUMNS], "scale": files.leaf(torch.rand(1))}
    octets = torch.randint(0, 256, (EXPERTS, ROWS, 1, 16), dtype=torch.uint8)
    scale = torch.randint(120, 130, (EXPERTS, ROWS, 1), dtype=torch.uint8)
    mxfp4 = {"dequantize": "mxfp4", "weight": files.leaf(octets), "scale": files.leaf(scale)}
    yield "mxfp4", {"transpose": mxfp4, "dims": [1, 2]}
    parts = [
        {
            "dequantize": "fp8_block",
            "weight": files.leaf(weight[index]),
            "scale": files.leaf(torch.rand(2, 2)),
            "block": [2, 16],
        }
        for index in range(EXPERTS)
    ]
    yield "stack of fp8", {"stack": parts, "dim": 0}


def leaves(expression: Any) -> Iterator[dict[str, Any]]:
    if isinstance(expression, list):
        for part in expression:
            yield from leaves(part)
    elif isinstance(expression, dict):
        if "file" in expression:
            yield expression
        else:
            yield from leaves(list(expression.values()))


def stored_bytes(expression: Any) -> int:
    sizes = {"bf16": 2, "fp32": 4}
    total = 0
    for leaf in leaves(expression):
        count = sizes.get(leaf["dtype"], 1)
        for dim in leaf["shape"]:
            count *= dim
        total += count
    return total


@pytest.mark.parametrize("ids", IDS, ids=str)
def test_chosen_experts_are_those_of_the_whole_and_nothing_else_is_read(files: Files, ids: list[int]) -> None:
    names = set()
    for name, expression in expressions(files):
        small = compacted(expression, ids)
        assert torch.equal(evaluate(small, {}), evaluate(expression, {})[ids]), name
        shared = 4 if name == "fp8 one scale" else 0
        assert (stored_bytes(small) - shared) * EXPERTS == (stored_bytes(expression) - shared) * len(ids), (
            name
        )
        names.add(name)
    assert len(names) == 15


def test_neighbours_are_one_piece(files: Files) -> None:
    leaf = files.leaf(numbers(EXPERTS, ROWS))
    assert compacted(leaf, [2, 3, 4]) == {**leaf, "offset": 64 + 2 * ROWS * 2, "shape": [3, ROWS]}


def refused(files: Files) -> Iterator[tuple[str, Any, list[int]]]:
    stacked = files.leaf(numbers(EXPERTS, ROWS, COLUMNS))
    turned = files.leaf(numbers(ROWS, EXPERTS, COLUMNS))
    yield "not stored first", {"transpose": turned, "dims": [0, 1]}, [0]
    yield "along the cat", {"cat": [stacked, stacked], "dim": 0}, [0]
    yield "along the narrow", {"narrow": stacked, "dim": 0, "start": 0, "length": 2}, [0]
    yield "folded", {"reshape": stacked, "shape": [EXPERTS * 2, ROWS // 2, COLUMNS]}, [0]
    yield "no such expert", stacked, [EXPERTS]
    yield "before the first", stacked, [-1]
    yield "a number", files.leaf(torch.tensor(1.0)), [0]
    yield (
        "not quantised one by one",
        {
            "dequantize": "fp8_block",
            "weight": files.leaf(torch.zeros(EXPERTS, COLUMNS).to(torch.float8_e4m3fn)),
            "scale": files.leaf(torch.ones(1, 1)),
            "block": [EXPERTS, COLUMNS],
        },
        [0],
    )
    yield "malformed", {"stack": stacked, "dim": 0}, [0]
    yield "unknown", {"twist": stacked}, [0]


def test_what_cannot_be_taken_apart_says_so(files: Files) -> None:
    for _, expression, ids in refused(files):
        with pytest.raises(ValueError, match="expert"):
            compacted(expression, ids)
