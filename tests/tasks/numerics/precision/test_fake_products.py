"""Products of the modelled noise: what is rounded, what is not, held against arithmetic written out here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from day0.tasks.numerics.precision.fake_products import FakeProducts, Held
from day0.tasks.numerics.precision.lowerings import LOWERINGS


def _fp8(rows: Tensor) -> Tensor:
    """Each row to the nearest multiples of its largest magnitude over 448 that e4m3 holds."""
    scale = rows.abs().amax(-1, keepdim=True) / 448
    return (rows / scale).to(torch.float8_e4m3fn).float() * scale


def _drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()


def _products(*weights: Tensor, dtype: str = "fp8_e4m3", keep: bool = True) -> FakeProducts:
    held = Held(LOWERINGS[dtype].matrices, keep=keep)
    held.put(weights)
    return FakeProducts(held, LOWERINGS[dtype].inputs)


@pytest.mark.parametrize("keep", [True, False])
def test_a_linear_layer_rounds_outputs_channel_by_channel_and_inputs_token_by_token(keep: bool) -> None:
    weight, bias, values = _drawn(24, 40), _drawn(24), _drawn(2, 5, 40)
    values[0, 0] *= 1000  # a scale for all tokens would leave nothing of the others
    with torch.no_grad(), _products(weight, keep=keep):
        twice = [linear(values, weight, bias) for _ in range(2)]
    numbers = _fp8(weight.float()).bfloat16().float()
    wanted = (_fp8(values.float()) @ numbers.T + bias.float()).bfloat16()
    for output in twice:
        assert output.dtype == torch.bfloat16
        assert torch.allclose(output.float(), wanted.float(), rtol=2**-7, atol=1e-2)
    assert not torch.equal(twice[0], linear(values, weight, bias))


def test_a_slice_of_stacked_experts_is_known_whichever_axis_is_summed_over() -> None:
    stack, values = _drawn(3, 32, 24), _drawn(7, 32)
    with torch.no_grad(), _products(stack):
        one = values @ stack[1]
        all_ = torch.bmm(values.expand(3, 7, 32), stack)
    numbers = _fp8(stack.float().mT).bfloat16().float().mT
    wanted = torch.einsum("th,ehi->eti", _fp8(values.float()), numbers).bfloat16().float()
    assert torch.allclose(one.float(), wanted[1], rtol=2**-7, atol=1e-2)
    assert torch.allclose(all_.float(), wanted, rtol=2**-7, atol=1e-2)


def test_copies_of_a_weight_count_as_the_weight() -> None:
    weight, values = _drawn(32, 32), _drawn(4, 32)
    with torch.no_grad(), _products(weight):
        plain = linear(values, weight)
        gathered = linear(values, torch.stack([weight, weight])[torch.tensor([0])][0])
        moved = linear(values, weight.t().contiguous().t())
        wide = linear(values.float(), weight.float())
    assert torch.equal(moved, plain)
    exact = values.float() @ weight.float().T
    assert float((wide - plain.float()).norm() / exact.norm()) < 2**-7
    assert float((wide - exact).norm() / exact.norm()) > 2**-6
    assert not torch.equal(gathered, plain), "torch.stack makes something new, which is not followed"


def test_other_matrices_and_small_ones_are_left_alone() -> None:
    weight, other, gate, values = _drawn(32, 32), _drawn(32, 32), _drawn(1, 32), _drawn(4, 32)
    with torch.no_grad():
        wanted = [linear(values, other), linear(values, gate), values @ values.T]
        with _products(weight, gate):
            found = [linear(values, other), linear(values, gate), values @ values.T]
    assert all(torch.equal(one, due) for one, due in zip(found, wanted, strict=True))


def test_parameters_that_share_one_file_are_told_apart() -> None:
    file = _drawn(2 * 32 * 32)
    first, second = file[: 32 * 32].view(32, 32), file[32 * 32 :].view(32, 32)
    values = _drawn(4, 32)
    with torch.no_grad():
        plain = linear(values, first)
        with _products(second):
            found = linear(values, first), linear(values, second)
        assert torch.equal(found[0], plain)
        assert not torch.equal(found[1], linear(values, second))


def test_large_matrices_are_rounded_a_block_at_a_time_to_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight, values = _drawn(300, 256), _drawn(4, 256)
    with torch.no_grad(), _products(weight, dtype="int8"):
        whole = linear(values, weight)
    monkeypatch.setattr("day0.tasks.numerics.precision.fake_products._ROUNDED_AT_ONCE", 1)
    with torch.no_grad(), _products(weight, dtype="int8"):
        assert torch.equal(linear(values, weight), whole)


def test_what_is_not_finite_stays_so() -> None:
    weight, values = _drawn(32, 32), _drawn(4, 32)
    weight[3, 5] = torch.nan
    with torch.no_grad(), _products(weight):
        output = linear(values, weight)
    assert bool(output[:, 3].isnan().all())
    assert bool(torch.cat([output[:, :3], output[:, 4:]], 1).isfinite().all())
