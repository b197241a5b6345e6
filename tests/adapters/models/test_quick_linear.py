"""Linear layers that are quicker than torch's and round as it does."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from day0.adapters.models import quick_linear
from day0.adapters.models.quick_linear import Scratch, quick_around

HALVES = [torch.bfloat16, torch.float16]


def layer(rows: int, dtype: torch.dtype, columns: int = 777, outputs: int = 1501) -> tuple[Tensor, ...]:
    chance = torch.Generator().manual_seed(rows)
    input, weight, bias = (
        torch.randn(shape, generator=chance) for shape in ((2, rows, columns), (outputs, columns), (outputs,))
    )
    return input.to(dtype), (weight / columns**0.5).to(dtype), bias.to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("biased", [False, True])
def test_halves_are_the_exact_product_rounded_once(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int, biased: bool
) -> None:
    monkeypatch.setattr(quick_linear, "_has_units", lambda: False)
    monkeypatch.setattr(quick_linear, "_BLOCK", 100_000)
    monkeypatch.setattr(quick_linear, "_LARGE_BLOCK", 300_000)
    input, weight, bias = layer(rows, dtype)
    given = (input, weight, bias) if biased else (input, weight)
    exact = functional.linear(*(one.double() for one in given))
    with quick_around(dtype, Scratch())():
        found = functional.linear(*given)
    assert found.dtype == dtype
    assert found.shape == exact.shape
    rounded = exact.to(dtype)
    # A sum that lies at the middle of two numbers goes to one or the other by its order.
    assert (found != rounded).double().mean() < 0.01
    step = torch.finfo(dtype).eps * rounded.double().abs().clamp_min(2**-6)
    assert bool(((found.double() - exact).abs() <= 0.51 * step + 1e-5).all())


def test_fp32_is_as_exact_as_fp32_can_be() -> None:
    for rows in (1, 2, 60, 600):
        input, weight, bias = layer(rows, torch.float32)
        exact = functional.linear(input.double(), weight.double(), bias.double())
        with quick_around(torch.float32, Scratch())():
            found = functional.linear(input, weight, bias)
        assert float((found - exact).norm() / exact.norm()) < 2e-6


def test_only_large_plain_layers_of_its_precision_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_linear, "_has_units", lambda: False)
    monkeypatch.setattr(quick_linear, "_product", lambda *args: pytest.fail("it was taken"))
    for dtype, rows, columns in (
        (torch.float32, 40, 777),
        (torch.bfloat16, 2, 777),
        (torch.bfloat16, 40, 64),
    ):
        input, weight, bias = layer(rows, dtype, columns)
        with quick_around(torch.bfloat16, Scratch())():
            found = functional.linear(input, weight, bias)
        assert torch.equal(found, functional.linear(input, weight, bias))


def test_a_module_is_quick_in_the_thread_that_entered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_linear, "_has_units", lambda: False)
    taken: list[int] = []
    before = quick_linear._product
    monkeypatch.setattr(quick_linear, "_product", lambda *args: taken.append(1) or before(*args))  # type: ignore[func-returns-value]  # counts the calls
    module = torch.nn.Linear(1000, 600, dtype=torch.bfloat16)
    input = torch.ones(16, 1000, dtype=torch.bfloat16)
    with torch.no_grad(), quick_around(torch.bfloat16, Scratch())():
        module(input)
        other = threading.Thread(target=lambda: module(input))
        other.start()
        other.join()
    assert len(taken) == 1


def test_nothing_changes_where_the_cpu_has_units_or_the_precision_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quick_linear, "_has_units", lambda: True)
    monkeypatch.setattr(quick_linear, "_product", lambda *args: pytest.fail("it was taken"))
    for dtype in (torch.bfloat16, torch.float64):
        input, weight, bias = layer(40, dtype)
        with quick_around(dtype, Scratch())():
            functional.linear(input, weight, bias)
