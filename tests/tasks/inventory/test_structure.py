"""Norms, activation, positions, attention, routing, pattern of layers: from config and tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from day0.tasks.inventory.layer_pattern import layer_pattern
from day0.tasks.inventory.record import InventoryRecord, Layer
from day0.tasks.inventory.record_structure import Position, Structure
from day0.tasks.inventory.take import take_inventory
from support.layouts import FIXTURES, RELEASES, layout_release, make_release

BASE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100, "hidden_act": "silu",
}  # fmt: skip


def take(config: Mapping[str, Any], *names: str, dtype: str = "bf16") -> InventoryRecord:
    tensors: dict[str, tuple[str, Sequence[int]]] = {
        "model.embed_tokens.weight": (dtype, (100, 64)),
        **{
            f"model.layers.{layer}.{name}": (dtype, (64,) if name.endswith("bias") else (64, 64))
            for layer in range(2)
            for name in ("self_attn.q_proj.weight", *names)
        },
    }
    return take_inventory(make_release({**BASE, **config}, tensors))


def structure(config: Mapping[str, Any], *names: str) -> Structure:
    return take(config, *names).facts.structure


@pytest.mark.parametrize(
    ("config", "names", "expected"),
    [
        ({"rms_norm_eps": 1e-6}, (), ("rms", 1e-6, False, False)),
        ({"layer_norm_eps": 1e-5}, (), ("layer", 1e-5, False, False)),
        (
            {"norm_eps": 1e-5},
            ("input_layernorm.weight", "input_layernorm.bias"),
            ("layer", 1e-5, False, True),
        ),
        ({"norm_eps": 1e-5}, ("input_layernorm.weight",), ("rms", 1e-5, False, False)),
        ({"layernorm_epsilon": 1e-5, "rmsnorm": True}, (), ("rms", 1e-5, False, False)),
        ({"rms_norm_eps": 1e-6}, ("self_attn.q_norm.weight",), ("rms", 1e-6, True, False)),
        ({"rms_norm_eps": 1e-6}, ("self_attn.query_layernorm.weight",), ("rms", 1e-6, True, False)),
        ({"rms_norm_eps": 1e-6}, ("self_attn.q_a_layernorm.weight",), ("rms", 1e-6, False, False)),
    ],
)
def test_norms(config: dict[str, Any], names: tuple[str, ...], expected: tuple[Any, ...]) -> None:
    found = structure(config, *names).norms
    assert (found.kind, found.eps, found.qk, found.biases) == expected


@pytest.mark.parametrize(
    ("config", "names", "kind", "limit"),
    [
        ({}, ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "swiglu", 0),
        ({"hidden_act": "gelu"}, ("mlp.fc1.weight",), "gelu", 0),
        ({"hidden_act": "gelu_pytorch_tanh"}, ("mlp.gate_proj.weight",), "geglu", 0),
        ({"hidden_act": "relu2"}, ("mlp.up_proj.weight",), "relu2", 0),
        ({"swiglu_limit": 10.0}, ("mlp.gate_proj.weight",), "swiglu", 10),
        ({"model_type": "gpt_oss", "swiglu_limit": 7.0}, ("mlp.gate_up_proj.weight",), "swiglu_oai", 7),
    ],
)
def test_activation(config: dict[str, Any], names: tuple[str, ...], kind: str, limit: float) -> None:
    found = structure(config, *names).activation
    assert (found.kind, found.limit) == (kind, limit)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"rope_theta": 1e4}, {"kind": "rope", "theta": 1e4, "rotary_dim": 16, "partial": 1.0}),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, {"rotary_dim": 8, "partial": 0.5}),
        ({"rotary_pct": 0.25, "rotary_emb_base": 10000}, {"kind": "rope", "theta": 1e4, "rotary_dim": 4}),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                              "original_max_position_embeddings": 8192}},
         {"scaling": "llama3", "factor": 8.0, "original_positions": 8192, "theta": 5e5}),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}},
         {"kind": "rope", "theta": 1e6, "scaling": "yarn", "factor": 4.0}),
        ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
         {"theta": 1e6, "local_theta": 1e4, "scaling": ""}),
        ({"rope_theta": 1e6, "rope_local_base_freq": 1e4}, {"local_theta": 1e4}),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 1e6},
         {"scaling": "mrope", "sections": (16, 24, 24)}),
        ({"alibi": True}, {"kind": "alibi", "rotary_dim": 0}),
        ({"n_positions": 1024}, {"kind": "learned"}),
        ({"relative_attention_num_buckets": 32}, {"kind": "relative"}),
        ({"rope_theta": 1e4, "no_rope_layers": [1, 0]}, {"nope_layers": "1", "kind": "rope"}),
        ({"rope_theta": 1e4, "no_rope_layer_interval": 2}, {"nope_layers": "1"}),
        ({"rope_theta": 1e4, "mla_use_nope": True}, {"nope_layers": "0-1", "kind": "none"}),
        ({"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512},
         {"kind": "rope", "rotary_dim": 64, "partial": 64 / 192}),
        ({"rope_theta": "x", "rope_scaling": [1]}, {"theta": 0.0, "scaling": ""}),
        ({}, {"kind": "", "theta": 0.0}),
    ],
)  # fmt: skip
def test_positions(config: dict[str, Any], expected: dict[str, Any]) -> None:
    found: Position = structure(config).position
    for key, value in expected.items():
        held = getattr(found, key)
        assert (tuple(held) if isinstance(held, list) else held) == value


def test_positions_of_alternating_layers_of_cohere() -> None:
    config = {"model_type": "cohere2", "rope_theta": 1e4, "sliding_window": 4096, "sliding_window_pattern": 2}
    assert structure(config).position.nope_layers == "1"


@pytest.mark.parametrize(
    ("config", "names", "codes"),
    [
        ({"attention_bias": False}, ("self_attn.q_proj.bias",), {"INV079"}),
        ({"attention_bias": True}, (), {"INV079"}),
        ({"attention_bias": True}, ("self_attn.q_proj.bias",), set()),
        ({"attention_bias": False}, (), set()),
        ({}, ("self_attn.q_proj.bias",), set()),
        ({"attention_bias": False, "model_type": "qwen2"}, ("self_attn.q_proj.bias",), set()),
    ],
)
def test_biases_against_the_config(config: dict[str, Any], names: tuple[str, ...], codes: set[str]) -> None:
    record = take(config, *names)
    assert {finding.code for finding in record.findings} & {"INV079"} == codes


def test_routing() -> None:
    config = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
              "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.5}  # fmt: skip
    router = structure(
        config, "mlp.gate.weight", "mlp.gate.e_score_correction_bias", "mlp.experts.0.up_proj.weight"
    ).router
    assert router is not None
    assert (router.scoring, router.groups, router.top_groups, router.top_k) == ("sigmoid", 4, 2, 2)
    assert (router.normalised, router.scaling, router.bias) == (True, 2.5, "e_score_correction_bias")
    assert structure({}).router is None


def layers(kinds: Sequence[str], feeds: Sequence[str] | None = None) -> list[Layer]:
    return [
        Layer(name=f"model.layers.{i}", index=i, kind=kind, feed_forward=feeds[i] if feeds else "dense",
              params=0, bytes=0, kv_bytes_per_token=0)
        for i, kind in enumerate(kinds)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "feeds", "text"),
    [
        (["linear"] * 3 + ["full"], None, "3x linear + 1x full"),
        ((["linear"] * 3 + ["full"]) * 12, None, "3x linear + 1x full, repeated 12"),
        (["sliding", "full"] * 2, None, "1x sliding + 1x full, repeated 2"),
        (
            (["sliding"] * 5 + ["full"]) * 10 + ["sliding"] * 2,
            None,
            "5x sliding + 1x full, repeated 10, then 2x sliding",
        ),
        (["mla"] * 61, ["dense"] * 3 + ["moe"] * 58, "3x mla dense + 58x mla moe"),
        (["full"] * 4, None, "4x full"),
        (["full"], None, "1x full"),
        ([], None, ""),
        (["", "state_space", ""], ["moe", "", "dense"], "1x moe + 1x state_space + 1x dense"),
    ],
)
def test_pattern_of_layers(kinds: list[str], feeds: list[str] | None, text: str) -> None:
    assert layer_pattern(layers(kinds, feeds)).text == text


def test_a_first_layer_of_its_own_before_the_period() -> None:
    kinds = ["linear", *["linear", "linear", "full"] * 8]
    feeds = ["dense", *["moe"] * 24]
    pattern = layer_pattern(layers(kinds, feeds))
    assert pattern.text == "1x linear dense, then 2x linear moe + 1x full moe, repeated 8"
    assert {(group.kind, group.feed_forward): group.layers for group in pattern.groups} == {
        ("linear", "dense"): "0",
        ("linear", "moe"): "1-2,4-5,7-8,10-11,13-14,16-17,19-20,22-23",
        ("full", "moe"): "3-24:3",
    }


def test_structure_of_real_releases() -> None:
    config = json.loads((FIXTURES / "configs" / RELEASES[0] / "config.json").read_text())
    deepseek = take_inventory(make_release(config, {}), expected=False).facts.structure
    assert deepseek.layer_pattern.text == "3x mla dense + 58x mla moe"
    assert (deepseek.position.scaling, deepseek.position.factor) == ("yarn", 40.0)
    assert deepseek.position.rotary_dim == 64
    assert deepseek.router is not None
    assert (deepseek.router.groups, deepseek.router.top_groups, deepseek.router.scaling) == (8, 4, 2.5)
    gpt_oss = take_inventory(layout_release(RELEASES[2])).facts.structure
    assert gpt_oss.layer_pattern.text == "1x sliding + 1x full, repeated 12"
    assert (gpt_oss.activation.kind, gpt_oss.activation.limit) == ("swiglu_oai", 7.0)
    assert gpt_oss.attention.sinks
    assert list(gpt_oss.attention.biases) == ["k", "o", "q", "v"]
    assert (gpt_oss.dtype.verdict, gpt_oss.dtype.headers) == ("absent", "bf16")
