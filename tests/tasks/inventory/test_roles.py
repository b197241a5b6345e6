"""Roles from names, neighbours and shapes, over the families that name them differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from day0.tasks.inventory.patterns import list_tensors
from day0.tasks.inventory.roles import look_around, place_of
from support.layouts import make_tensor

Kind = tuple[str, Sequence[int]]


def roles(tensors: Mapping[str, Kind], layers: int = 0, mtp: bool = False) -> dict[str, str]:
    infos = {name: make_tensor(name, dtype, shape) for name, (dtype, shape) in tensors.items()}
    groups = list_tensors(infos).groups
    around = look_around(groups, layers, mtp)
    return {group.example: place_of(group, around).role for group in groups}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("transformer.wte.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("output.weight", "head"),
        ("head.weight", "head"),
        ("model.norm.weight", "norm"),
        ("transformer.ln_f.weight", "norm"),
        ("model.layers.0.self_attn.q_norm.weight", "norm"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"),
        ("model.layers.0.self_attn.sinks", "attention"),
        ("transformer.h.0.attn.c_proj.weight", "attention"),
        ("model.layers.0.linear_attn.A_log", "attention"),
        ("model.layers.0.self_attn.indexer.wq_b.weight", "attention"),
        ("backbone.layers.0.mixer.in_proj.weight", "attention"),
        ("backbone.layers.0.mixer.up_proj.weight", "dense_mlp"),
        ("transformer.h.0.mlp.c_proj.weight", "dense_mlp"),
        ("model.layers.0.feed_forward.w1.weight", "dense_mlp"),
        ("blk.0.ffn_down.weight", "dense_mlp"),
        ("blk.0.attn_q.weight", "attention"),
        ("blk.0.attn_norm.weight", "norm"),
        ("vision_tower.encoder.blocks.0.wqkv.weight", "vision"),
        ("model.visual.merger.mlp.0.weight", "projector"),
        ("multi_modal_projector.linear_1.weight", "projector"),
        ("audio_tower.layers.0.fc1.weight", "unknown"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "buffer"),
        ("model.layers.0.hc_attn_base", "unknown"),
    ],
)
def test_role_by_name(name: str, role: str) -> None:
    assert roles({name: ("bf16", (8, 8))}) == {name: role}


def test_mixtures_of_experts() -> None:
    found = roles(
        {
            "model.layers.0.mlp.gate.weight": ("bf16", (4, 8)),
            "model.layers.0.mlp.gate.e_score_correction_bias": ("fp32", (4,)),
            "model.layers.0.mlp.experts.3.up_proj.weight": ("bf16", (8, 8)),
            "model.layers.0.mlp.experts.gate_up_proj": ("bf16", (4, 8, 8)),
            "model.layers.0.mlp.shared_expert.up_proj.weight": ("bf16", (8, 8)),
            "model.layers.0.mlp.shared_expert_gate.weight": ("bf16", (1, 8)),
            "blk.1.ffn_gate_inp.weight": ("fp32", (4, 8)),
            "blk.1.ffn_gate_exps.weight": ("bf16", (4, 8, 8)),
            "blk.1.ffn_gate_shexp.weight": ("bf16", (8, 8)),
        }
    )
    assert list(found.values()) == [
        *["router", "router", "expert", "expert", "shared_expert", "shared_expert"],
        *["router", "expert", "shared_expert"],
    ]


def test_gate_is_no_router_without_experts() -> None:
    assert roles({"model.layers.0.mlp.gate.weight": ("bf16", (8, 8))}) == {
        "model.layers.0.mlp.gate.weight": "dense_mlp"
    }


def test_scale_is_a_side_tensor_only_beside_low_precision() -> None:
    learnable = {
        "model.layers.0.mlp.up.weight": ("bf16", (8, 8)),
        "model.layers.0.mlp.up.scale": ("bf16", (8,)),
    }
    quantised = {
        "model.layers.0.mlp.up.weight": ("int8", (8, 8)),
        "model.layers.0.mlp.up.scale": ("e8m0", (8, 1)),
    }
    assert roles(learnable)["model.layers.0.mlp.up.scale"] == "dense_mlp"
    assert roles(quantised)["model.layers.0.mlp.up.scale"] == "aux"


def test_scales_of_fused_experts() -> None:
    found = roles(
        {
            "model.layers.0.mlp.experts.down_proj": ("fp8_e4m3", (4, 8, 8)),
            "model.layers.0.mlp.experts.down_proj_scale_inv": ("fp32", (4, 1, 1)),
        }
    )
    assert list(found.values()) == ["expert", "aux"]


def test_bitsandbytes_side_tensors() -> None:
    found = roles(
        {
            "model.layers.0.mlp.up_proj.weight": ("uint8", (32, 1)),
            "model.layers.0.mlp.up_proj.weight.absmax": ("fp32", (1,)),
            "model.layers.0.mlp.up_proj.weight.quant_map": ("fp32", (16,)),
            "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4": ("uint8", (90,)),
        }
    )
    assert list(found.values()) == ["dense_mlp", "aux", "aux", "aux"]


def test_multi_token_prediction_beyond_the_last_layer() -> None:
    tensors: dict[str, Kind] = {
        "model.layers.1.mlp.up_proj.weight": ("bf16", (8, 8)),
        "model.layers.2.mlp.up_proj.weight": ("bf16", (8, 8)),
        "model.layers.2.eh_proj.weight": ("bf16", (8, 16)),
        "mtp.fc.weight": ("bf16", (8, 16)),
    }
    assert list(roles(tensors, layers=2).values()) == ["dense_mlp", "mtp", "mtp", "mtp"]
    del tensors["model.layers.2.eh_proj.weight"]
    assert list(roles(tensors, layers=2).values()) == ["dense_mlp", "dense_mlp", "mtp"]


def test_causal_mask_is_a_buffer() -> None:
    assert roles({"h.0.attn.bias": ("fp32", (1, 1, 16, 16))}) == {"h.0.attn.bias": "buffer"}
    assert roles({"h.0.attn.bias": ("fp32", (16,))}) == {"h.0.attn.bias": "attention"}
