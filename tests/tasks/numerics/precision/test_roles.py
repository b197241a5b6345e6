"""Roles of the weights of tiny models of several families."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from day0.tasks.numerics.precision.roles import roles_of, roles_of_vectors, roles_present
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


@pytest.mark.parametrize(
    ("model_type", "present"),
    [
        ("llama", ("embedding", "norm", "attention", "dense_mlp", "head")),
        (
            "deepseek_v3",
            ("embedding", "norm", "attention", "router", "expert", "shared_expert", "dense_mlp", "head"),
        ),
        ("gpt_oss", ("embedding", "norm", "attention", "router", "expert", "head")),
        ("mamba2", ("embedding", "norm", "attention", "head")),
    ],
)
def test_every_weight_of_a_forward_has_a_role(tiny: Tiny, model_type: str, present: tuple[str, ...]) -> None:
    skeleton = tiny(model_type).skeleton
    roles = roles_of(skeleton)
    assert roles_present(roles) == present
    assert "unknown" not in {role for parts in roles.values() for role in parts.values()}
    assert roles_of_vectors(skeleton, roles) & set(present) == {"norm"}
    for node in skeleton.nodes:
        if node.called and node.weights:
            assert set(roles[node.name]) == set(node.weights)


def test_parts_of_a_layer(tiny: Tiny) -> None:
    roles = roles_of(tiny("deepseek_v3").skeleton)
    layer = roles["model.layers.1"]
    assert layer["self_attn.q_a_layernorm.weight"] == "norm"
    assert layer["self_attn.kv_b_proj.weight"] == "attention"
    assert layer["mlp.gate.weight"] == layer["mlp.gate.e_score_correction_bias"] == "router"
    assert layer["mlp.experts.down_proj"] == "expert"
    assert layer["mlp.shared_experts.up_proj.weight"] == "shared_expert"
    assert roles["model.layers.0"]["mlp.up_proj.weight"] == "dense_mlp"
    assert roles["lm_head"] == {"weight": "head"}
