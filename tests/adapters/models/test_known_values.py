from __future__ import annotations

from typing import Any

import pytest
import torch

from day0.adapters.models.known_values import KnownValues, known, with_values


def under_mode(run: Any) -> Any:
    with torch.no_grad():
        mode = KnownValues(True)
        with mode.creation(), mode:
            return run(), mode.consulted


def value_of(tensor: torch.Tensor) -> list[Any]:
    value = known(tensor)
    assert value is not None
    assert tensor.is_meta
    assert value.shape == tensor.shape
    found: list[Any] = value.tolist()
    return found


def test_what_is_computed_from_known_values_is_known() -> None:
    grid = with_values(torch.tensor([[1, 8, 12], [1, 4, 4]]))
    ends, asked = under_mode(lambda: (grid[:, 1] * grid[:, 2]).cumsum(0))
    assert value_of(ends) == [96, 112]
    assert not asked


def test_shapes_that_depend_on_values_are_exact() -> None:
    mask = with_values(torch.tensor([True, False, True, True]))
    features = torch.empty(4, 5, device="meta")
    picked, rows = under_mode(lambda: (features[mask], mask.nonzero()))[0]
    assert picked.shape == (3, 5)
    assert value_of(rows) == [[0], [2], [3]]


def test_numbers_reach_the_code_that_reads_them() -> None:
    lengths = with_values(torch.tensor([2, 5]))

    def run() -> list[Any]:
        parts = torch.split(torch.empty(7, 3, device="meta"), lengths.tolist())
        return [len(part) for part in parts] + [int(lengths.max())]

    assert under_mode(run) == ([2, 5, 5], False)


def test_a_write_through_a_view_is_seen_and_one_of_unknown_values_forgets() -> None:
    def run() -> tuple[list[int], bool]:
        index = torch.zeros(4, dtype=torch.int64, device="meta")
        index[1:3] = torch.tensor([7, 9], device="meta")
        written = value_of(index)
        index[0] = torch.empty(3, device="meta").normal_().argmax()
        return written, bool(index.max() > 100)  # nobody knows: the oracle says yes

    (written, answer), asked = under_mode(run)
    assert written == [0, 7, 9, 0]
    assert answer
    assert asked


def test_chance_and_weights_stay_unknown() -> None:
    weight = torch.empty(4, device="meta")
    made = under_mode(lambda: (torch.rand(3, device="meta"), weight * with_values(torch.ones(4))))[0]
    assert [known(tensor) for tensor in made] == [None, None]


@pytest.mark.parametrize("moved", [lambda x: x.cpu(), lambda x: x.to("cpu", torch.float64)])
def test_what_goes_to_the_host_is_real_there(moved: Any) -> None:
    found = under_mode(lambda: moved(with_values(torch.tensor([3, 4]))))[0]
    assert found.tolist() == [3, 4]


def test_lists_of_numbers_and_of_single_values_are_known() -> None:
    ends = with_values(torch.tensor([4, 9]))
    made = under_mode(lambda: torch.tensor([0, ends[0], int(ends[1])], device="meta"))[0]
    assert value_of(made) == [0, 4, 9]
    assert value_of(under_mode(lambda: ends.new_tensor([1, 2]))[0]) == [1, 2]
