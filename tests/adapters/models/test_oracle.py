from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from day0.adapters.models.oracle import ANSWERED_ROWS, ValueOracle


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("answer", [True, False])
def test_truth_values_are_what_the_answer_says(answer: bool) -> None:
    with ValueOracle(answer) as oracle:
        assert bool((_meta(3) > 0).all()) is answer
        assert _meta(1).item() == float(answer)
        assert _meta(1, dtype=torch.int64).item() == int(answer)
        assert torch.equal(_meta(2), _meta(2)) is answer
    assert oracle.consulted


def test_a_run_that_never_asks_is_told_apart() -> None:
    with ValueOracle(True) as oracle:
        (_meta(4, 4) @ _meta(4, 4)).softmax(-1)
    assert not oracle.consulted


@pytest.mark.parametrize(
    ("run", "shape"),
    [
        (lambda: _meta(5, 7).nonzero(), (ANSWERED_ROWS, 2)),
        (lambda: _meta(3).nonzero(), (3, 1)),
        (lambda: torch.where(_meta(2, 2) > 0)[1], (4,)),
        (lambda: _meta(6, 4)[_meta(6) > 0], (6, 4)),
        (lambda: _meta(6, 4).masked_select(_meta(6, 4) > 0), (ANSWERED_ROWS,)),
        (lambda: torch.bincount(_meta(9, dtype=torch.int64), minlength=16), (16,)),
        (lambda: torch.repeat_interleave(_meta(3, 2), _meta(3, dtype=torch.int64), dim=0), (3, 2)),
        (lambda: torch.unique(_meta(30, dtype=torch.int64)), (ANSWERED_ROWS,)),
    ],
)
def test_data_dependent_results_have_a_shape(run: Callable[[], Any], shape: tuple[int, ...]) -> None:
    with ValueOracle(False):
        assert tuple(run().shape) == shape


def test_values_can_be_brought_to_the_host() -> None:
    with ValueOracle(True):
        assert _meta(3, dtype=torch.int64).tolist() == [1, 1, 1]


def test_writing_through_a_mask_keeps_the_shape() -> None:
    target = _meta(6, 4)
    with ValueOracle(True):
        target[_meta(6) > 0] = _meta(2, 4)
    assert tuple(target.shape) == (6, 4)


def test_real_tensors_answer_for_themselves() -> None:
    with ValueOracle(False):
        assert bool(torch.ones(3).all())
        assert torch.tensor([0, 2, 0]).nonzero().tolist() == [[1]]


def test_sizes_that_were_read_add_up_to_the_rows() -> None:
    rows = torch.empty((12, 3), device="meta")
    for answer in (True, False):
        with ValueOracle(answer):
            sizes = torch.empty(4, dtype=torch.int64, device="meta").tolist()
            parts = rows.split(sizes, dim=0)  # type: ignore[no-untyped-call]  # torch's own is untyped
        assert [part.shape[0] for part in parts] == ([1, 1, 1, 9] if answer else [0, 0, 0, 12])
    with pytest.raises(RuntimeError, match="sum"):
        rows.split([1, 2], dim=0)  # type: ignore[no-untyped-call]  # torch's own is untyped
