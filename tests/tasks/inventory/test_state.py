"""Kinds of layers and the bytes they keep, by the configs of published families."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.inventory.config_facts import read_config
from day0.tasks.inventory.layer_kinds import feed_forwards, layer_kinds
from day0.tasks.inventory.state import layer_states

GQA = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512}
KV = 2 * 2 * 64 * 2  # key and value of two heads of 64, two bytes each


def kinds(config: dict[str, Any], layers: int) -> list[str]:
    return list(layer_kinds(read_config({**GQA, **config}), layers)[0])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["full"] * 6),
        ({"sliding_window": 16}, ["sliding"] * 6),
        ({"sliding_window": 16, "use_sliding_window": False}, ["full"] * 6),
        (
            {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 4},
            ["full"] * 4 + ["sliding"] * 2,
        ),
        ({"sliding_window": 16, "sliding_window_pattern": 3}, ["sliding", "sliding", "full"] * 2),
        ({"sliding_window": 16, "model_type": "gemma2"}, ["sliding", "full"] * 3),
        ({"layer_types": ["conv", "full_attention"] * 3}, ["linear", "full"] * 3),
        ({"full_attention_interval": 3, "linear_num_value_heads": 2}, ["linear", "linear", "full"] * 2),
        ({"attn_layer_period": 3, "attn_layer_offset": 1}, ["state_space", "full", "state_space"] * 2),
        (
            {"hybrid_override_pattern": "M-M*-M"},
            ["state_space", "", "state_space", "full", "", "state_space"],
        ),
        ({"linear_attn_config": {"full_attn_layers": [3, 6]}}, ["linear", "linear", "full"] * 2),
        (
            {"attention_chunk_size": 32, "no_rope_layers": [1, 1, 0] * 2},
            ["chunked", "chunked", "full"] * 2,
        ),
        ({"kv_lora_rank": 512}, ["mla"] * 6),
        ({"kv_lora_rank": 512, "index_topk": 2048}, ["sparse_indexed"] * 6),
    ],
)
def test_attention_kinds(config: dict[str, Any], expected: list[str]) -> None:
    assert kinds(config, 6) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "dddd"),
        ({"num_experts": 8}, "mmmm"),
        ({"num_experts": 8, "first_k_dense_replace": 1, "moe_layer_freq": 1}, "dmmm"),
        ({"num_experts": 8, "moe_layer_freq": [0, 1, 0, 1]}, "dmdm"),
        ({"num_experts": 8, "decoder_sparse_step": 2}, "dmdm"),
        ({"num_experts": 8, "mlp_only_layers": [0, 3]}, "dmmd"),
        ({"num_experts": 8, "expert_layer_period": 2, "expert_layer_offset": 1}, "dmdm"),
    ],
)
def test_feed_forwards(config: dict[str, Any], expected: str) -> None:
    assert "".join(word[0] for word in feed_forwards(read_config(config), 4)) == expected


@pytest.mark.parametrize(
    ("config", "kind", "expected"),
    [
        ({}, "full", (KV, 0, 0)),
        ({"sliding_window": 16}, "sliding", (KV, 16, 0)),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "mla", (1152, 0, 0)),
        (
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128},
            "sparse_indexed",
            (1408, 0, 0),
        ),
        # Qwen3-Next: 16 key heads and 32 value heads of 128, four taps
        (
            {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
             "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4},
            "linear",
            (0, 0, ((2 * 16 * 128 + 32 * 128) * 4 + 32 * 128 * 128) * 2),
        ),
        # Mamba 2 in NemotronH: 128 heads of 64, 8 groups, state of 128, four taps
        (
            {"mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
             "conv_kernel": 4},
            "state_space",
            (0, 0, ((8192 + 2 * 8 * 128) * 4 + 8192 * 128) * 2),
        ),
        ({"conv_L_cache": 3}, "linear", (0, 0, 512 * 3 * 2)),
    ],
)  # fmt: skip
def test_state_bytes(config: dict[str, Any], kind: str, expected: tuple[int, int, int]) -> None:
    (state,) = layer_states(read_config({**GQA, **config}), [kind])
    assert (state.per_token, state.window, state.per_sequence) == expected
    assert state.formula


def test_shared_caches_count_once() -> None:
    states = layer_states(read_config({**GQA, "num_kv_shared_layers": 2}), ["full"] * 4)
    assert [state.per_token for state in states] == [KV, KV, 0, 0]


def test_what_is_missing_is_said() -> None:
    (state,) = layer_states(read_config({"hidden_size": 8}), ["full"])
    assert state.formula == ""
