"""Names of weights of transformers' own models, of each role and those that are easily mistaken."""

from __future__ import annotations

import pytest

from day0.tasks.weight_roles import role_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("transformer.wpe.weight", "embedding"),
        ("model.layers.{i}.self_attn.q_proj.weight", "attention"),
        ("model.layers.{i}.self_attn.sinks", "attention"),
        ("model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight", "attention"),
        ("model.layers.{i}.linear_attn.conv1d.weight", "attention"),
        ("backbone.layers.{i}.mixer.in_proj.weight", "attention"),
        ("model.layers.{i}.self_attn.q_norm.weight", "norm"),
        ("model.norm.weight", "norm"),
        ("transformer.h.{i}.ln_1.weight", "norm"),
        ("model.layers.{i}.mlp.gate_proj.weight", "dense_mlp"),
        ("transformer.h.{i}.mlp.c_proj.weight", "dense_mlp"),
        ("lm_head.weight", "head"),
        ("model.layers.{i}.something", "unknown"),
    ],
)
def test_weights_of_any_model(name: str, role: str) -> None:
    for experts in (False, True):
        assert role_of(tuple(name.split(".")), experts=experts) == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.layers.{i}.mlp.gate.weight", "router"),
        ("model.layers.{i}.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.{i}.mlp.router.bias", "router"),
        ("model.layers.{i}.mlp.experts.gate_up_proj", "expert"),
        ("model.layers.{i}.mlp.experts.{i}.gate_proj.weight", "expert"),
        ("model.layers.{i}.mlp.shared_experts.down_proj.weight", "shared_expert"),
        ("model.layers.{i}.mlp.shared_expert_gate.weight", "shared_expert"),
    ],
)
def test_weights_of_models_with_experts(name: str, role: str) -> None:
    assert role_of(tuple(name.split(".")), experts=True) == role


def test_a_gate_is_no_router_without_experts() -> None:
    assert role_of(("model", "layers", "{i}", "mlp", "gate", "weight"), experts=False) == "dense_mlp"
