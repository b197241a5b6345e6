from __future__ import annotations

import pytest

from day0.tasks.cut_config import changes, cut_config, layer_count


def test_counts_lists_and_rules_follow_the_layers_kept() -> None:
    config = {
        "num_hidden_layers": 6,
        "layer_types": ["sliding", "sliding", "full", "sliding", "sliding", "full"],
        "first_k_dense_replace": 1,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [0, 4],
        "no_rope_layers": [1, 1, 0, 1, 1, 0],
        "moe_layers": [1, 2, 3],
        "interleave_moe_layer_step": 1,
        "num_nextn_predict_layers": 1,
        "eos_token_id": [1, 2],
        "hidden_size": 8,
        "auto_map": {"AutoModel": "code.py"},
        "quantization_config": {"quant_method": "fp8"},
    }
    cut = cut_config(config, [0, 2, 3], moe=[2, 3], spelt={})
    assert cut == {
        "num_hidden_layers": 3,
        "layer_types": ["sliding", "full", "sliding"],
        "first_k_dense_replace": 1,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0],
        "no_rope_layers": [1, 0, 1],
        "moe_layers": [1, 2],
        "interleave_moe_layer_step": 1,
        "num_nextn_predict_layers": 0,
        "eos_token_id": [1, 2],
        "hidden_size": 8,
        "quantization_config": {"quant_method": "fp8"},
    }


def test_lists_that_transformers_computes_are_spelt_out() -> None:
    config = {"num_hidden_layers": 4, "sliding_window_pattern": 2}
    spelt = {"layer_types": ["s", "f", "s", "f"], "other": [1, 2, 3, 4]}
    assert cut_config(config, [0, 3], moe=[], spelt=spelt)["layer_types"] == ["s", "f"]


def test_a_composite_config_is_cut_in_its_text_part() -> None:
    config = {"vision_config": {"num_hidden_layers": 9}, "text_config": {"num_hidden_layers": 4}}
    cut = cut_config(config, [0], moe=[], spelt={})
    assert cut == {"vision_config": {"num_hidden_layers": 9}, "text_config": {"num_hidden_layers": 1}}
    assert layer_count(config) == 4
    assert changes(config, cut) == ["text_config.num_hidden_layers: 4 -> 1"]


def test_a_config_without_a_count_is_refused() -> None:
    with pytest.raises(KeyError):
        layer_count({"num_hidden_layers": "many"})


def test_changes_name_old_and_new() -> None:
    assert changes({"a": 1, "b": [1] * 40}, {"a": 2, "c": True}) == [
        "a: 1 -> 2",
        "b: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,... -> absent",
        "c: absent -> True",
    ]
