"""What the built-in ways around compute, against what they stand in for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from day0.adapters.workarounds.casts import Cast
from day0.adapters.workarounds.decompositions import Decompose
from day0.adapters.workarounds.experts import LoopExperts
from day0.adapters.workarounds.rotary import RealRotary, turned
from day0_worker.workarounds import Ways, announce
from support.tiny_models import TINY

_REFERENCES = {
    way.name: f"{way.__module__}:{way.__name__}" for way in (Cast, Decompose, LoopExperts, RealRotary)
}


def _ways(*ids: str) -> Ways:
    announce(_REFERENCES, "")
    return Ways({"with": ",".join(ids)})


def _model(model_type: str, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(model_type, **changes)
    return AutoModelForCausalLM.from_config(config).eval()


def test_a_cast_computes_wider_and_answers_in_the_callers_dtype() -> None:
    values = torch.randn(64, 64).bfloat16()
    with _ways("cast:aten.mm.default:fp32").active(), torch.no_grad():
        product = values @ values
    assert product.dtype is torch.bfloat16
    assert torch.equal(product, (values.float() @ values.float()).bfloat16())


def test_a_cast_in_place_writes_into_its_argument() -> None:
    total = torch.ones(8, dtype=torch.bfloat16)
    with _ways("cast:aten.add_.Tensor:fp32").active(), torch.no_grad():
        total.add_(torch.ones(8, dtype=torch.bfloat16))
    assert torch.equal(total, torch.full((8,), 2.0, dtype=torch.bfloat16))


def test_attention_is_rebuilt_as_it_is_called() -> None:
    query = torch.randn(1, 4, 6, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    with _ways("decompose:aten.scaled_dot_product_attention.default").active(), torch.no_grad():
        rebuilt = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    torch.testing.assert_close(rebuilt, expected)


def test_looped_experts_say_what_grouped_ones_say() -> None:
    model = _model("qwen3_moe", **TINY["qwen3_moe"])
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        expected = model(tokens).logits
        LoopExperts().apply(model)
        looped = model(tokens).logits
    torch.testing.assert_close(looped, expected, rtol=1e-4, atol=1e-5)


def test_real_rotary_embedding_says_what_complex_says() -> None:
    config = dict(TINY["deepseek_v3"]) | {"num_key_value_heads": 4, "head_dim": 4}
    config = {key: value for key, value in config.items() if key not in ("n_group", "topk_group")}
    model = _model("deepseek_v2", **config)
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        expected = model(tokens).logits
        changed = copy.deepcopy(model)
        way = RealRotary()
        way.apply(changed)
        torch.testing.assert_close(changed(tokens).logits, expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(model(tokens).logits, expected), "the unchanged model computes as before"
    table = torch.polar(torch.ones(2, 3), torch.rand(2, 3))
    assert way.received("model.layers.0", table).shape == (2, 3, 2)
    assert way.returned("model.rotary_emb", torch.view_as_real(table)).is_complex()
    assert not way.returned("model.layers.0", torch.ones(2, 2)).is_complex()


def test_a_pair_is_turned_by_its_angle() -> None:
    value = torch.randn(2, 5, 8)
    angles = torch.rand(2, 5, 4)
    table = torch.stack([angles.cos(), angles.sin()], dim=-1)
    by_numbers = torch.view_as_complex(value.reshape(2, 5, 4, 2)) * torch.polar(torch.ones(2, 5, 4), angles)
    torch.testing.assert_close(turned(value, table), torch.view_as_real(by_numbers).flatten(-2))


@pytest.mark.parametrize(
    ("model_type", "dtype", "applies"),
    [("deepseek_v2", "complex64", True), ("deepseek_v2", "fp32", False), ("llama", "complex64", False)],
)
def test_real_rotary_stands_in_for_complex_numbers_of_known_families(
    model_type: str, dtype: str, applies: bool
) -> None:
    call = {"op": "aten.mul.Tensor", "dtypes": [dtype]}
    assert RealRotary().applies(call, {"model_type": model_type}) is applies
