"""Which weights are multiplied by, along which axis, and what goes into such a product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from day0.tasks.numerics.precision.fake_precision import Scheme, rounded
from day0.tasks.numerics.precision.products import Loaded, Products

TOKENS = Scheme("int8", "channel")


def loaded(**weights: Tensor) -> Loaded:
    found = Loaded()
    found.put(weights)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6,), (3, 6), (2, 3, 6)])
@pytest.mark.parametrize("bias", [False, True])
def test_inputs_of_a_linear_layer_are_rounded_token_by_token(
    dtype: torch.dtype, shape: tuple[int, ...], bias: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=bias, dtype=dtype)
    x = torch.randn(shape).to(dtype)
    known = loaded(weight=layer.weight.data)
    with torch.no_grad():
        expected = layer(rounded(x, TOKENS))
        with Products(known, {"weight": TOKENS}):
            found = layer(x)
        assert torch.equal(found, expected)
        assert not torch.equal(found, layer(x))
    assert known.axes == {"weight": 1}


def test_a_layer_that_stores_its_weight_the_other_way_round() -> None:
    layer, x = Conv1D(4, 6), torch.randn(2, 3, 6)
    known = loaded(weight=layer.weight.data)
    with torch.no_grad(), Products(known, {"weight": TOKENS}):
        found = layer(x)
    assert torch.allclose(found, layer(rounded(x, TOKENS)))
    assert known.axes == {"weight": 0}


@pytest.mark.parametrize("transposed", [False, True])
def test_one_expert_of_a_stack(transposed: bool) -> None:
    stack, x = torch.randn(3, 6, 4) if transposed else torch.randn(3, 4, 6), torch.randn(5, 6)
    known = loaded(gate_up_proj=stack)
    with Products(known, {"gate_up_proj": TOKENS}):
        found = x @ stack[1] if transposed else functional.linear(x, stack[1])
    weight = stack[1] if transposed else stack[1].T
    assert torch.equal(found, rounded(x, TOKENS) @ weight)
    assert known.axes == {"gate_up_proj": 1 if transposed else 2}


def test_a_weight_on_the_left_and_experts_in_one_product() -> None:
    weight, x = torch.randn(4, 6), torch.randn(6, 5)
    known = loaded(weight=weight)
    with Products(known, {"weight": TOKENS}):
        found = weight @ x
    assert torch.equal(found, weight @ rounded(x, TOKENS, 0))
    assert known.axes == {"weight": 1}
    stack, batch = torch.randn(3, 6, 4), torch.randn(3, 5, 6)
    known = loaded(weight=stack)
    with Products(known, {"weight": TOKENS}):
        found = torch.bmm(batch, stack)
    assert torch.equal(found, torch.bmm(rounded(batch, TOKENS), stack))
    assert known.axes == {"weight": 1}


def test_a_router_that_computes_in_another_dtype_is_followed() -> None:
    weight, x = torch.randn(4, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    known = loaded(weight=weight)
    with Products(known, {"weight": TOKENS}):
        found = functional.linear(x.float(), weight.float())
    assert torch.equal(found, functional.linear(rounded(x.float(), TOKENS), weight.float()))
    assert known.axes == {"weight": 1}


def test_what_is_no_product_of_a_weight_stays() -> None:
    norm, conv = torch.randn(6), torch.randn(6, 1, 3)
    table, other = torch.randn(9, 6), torch.randn(6, 6)
    known = loaded(norm=norm, conv=conv, table=table)
    every = dict.fromkeys(("norm", "conv", "table"), TOKENS)
    x = torch.randn(2, 5, 6)
    with Products(known, every):
        assert torch.equal(x * norm, torch.mul(x, norm))
        assert torch.equal(functional.linear(x, other), x @ other.T)
        functional.conv1d(x.mT, conv, groups=6)
        assert torch.equal(functional.embedding(torch.tensor([1, 4]), table), table[[1, 4]])
    assert known.axes == {"table": 1}


def test_only_what_is_in_place_is_known() -> None:
    first, second, x = torch.randn(4, 6), torch.randn(4, 6), torch.randn(5, 6)
    known = loaded(weight=first)
    known.put({"weight": second})
    with Products(known, {"weight": TOKENS}):
        assert torch.equal(functional.linear(x, first), x @ first.T)
        assert torch.equal(functional.linear(x, second), rounded(x, TOKENS) @ second.T)
