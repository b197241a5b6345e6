"""Config against tensors: each contradiction shown, and none where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.tasks.finding import Finding
from day0.tasks.inventory.config_facts import KEYS
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import MIXTRAL, SMOLLM2, Tensors, mixtral_tensors, smollm2_tensors


def findings(config: dict[str, Any], tensors: Tensors) -> dict[str, Finding]:
    return {finding.code: finding for finding in take_inventory(make_release(config, tensors)).findings}


@pytest.mark.parametrize(("config", "make"), [(SMOLLM2, smollm2_tensors), (MIXTRAL, mixtral_tensors)])
def test_sound_releases_have_no_finding(config: dict[str, Any], make: Any) -> None:
    assert findings(config, make()) == {}


def test_dtype() -> None:
    found = findings({**MIXTRAL, "torch_dtype": "float16"}, mixtral_tensors())
    assert found["INV017"].message == "the config states fp16, the headers hold most plain weights in bf16"
    assert found["INV017"].evidence == ("config.json#/torch_dtype",)


def test_tied_by_config_with_a_stored_head() -> None:
    found = findings({**MIXTRAL, "tie_word_embeddings": True}, mixtral_tensors())
    assert "lm_head.weight" in found["INV018"].message


def test_untied_by_config_without_a_head() -> None:
    found = findings({**SMOLLM2, "tie_word_embeddings": False}, smollm2_tensors())
    assert found["INV019"].severity == "error"


def test_missing_layer_is_named() -> None:
    tensors = {name: kind for name, kind in smollm2_tensors().items() if ".layers.25." not in name}
    found = findings(SMOLLM2, tensors)
    assert found["INV020"].message.endswith("lack 1: 25")


def test_missing_expert_is_named() -> None:
    tensors = mixtral_tensors()
    del tensors["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    found = findings(MIXTRAL, tensors)
    assert found["INV021"].subject.name == "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight"
    assert found["INV021"].message.endswith("w3.weight: layers 1, experts 2")


def test_irregular_layer() -> None:
    tensors = smollm2_tensors()
    del tensors["model.layers.11.self_attn.k_proj.weight"]
    found = findings(SMOLLM2, tensors)
    assert found["INV091"].message.startswith("layer 11 has no key projection of the attention")
    assert found["INV091"].severity == "error"


def test_shape_against_config() -> None:
    found = findings({**SMOLLM2, "hidden_size": 640}, smollm2_tensors())
    assert "640" in found["INV027"].message


def test_declared_quantisation_without_low_precision_tensors() -> None:
    config = {**MIXTRAL, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert "plain precision" in findings(config, mixtral_tensors())["INV022"].message


def test_low_precision_tensors_without_declaration() -> None:
    tensors = mixtral_tensors()
    for name in list(tensors):
        if "experts" in name:
            tensors[name] = ("fp8_e4m3", tensors[name][1])
            tensors[name.replace("weight", "weight_scale")] = ("fp32", (1,))
    found = findings(MIXTRAL, tensors)
    assert found["INV022"].message == "the config declares no quantisation, yet the tensors show fp8_tensor"
    assert "INV023" not in found


def test_unknown_dialect() -> None:
    config = {**MIXTRAL, "quantization_config": {"quant_method": "fantasy"}}
    assert "'fantasy'" in findings(config, mixtral_tensors())["INV031"].message


def test_scale_without_weight_and_weight_without_scale() -> None:
    tensors: Tensors = {
        "model.layers.0.mlp.up_proj.weight": ("fp8_e4m3", (256, 128)),
        "model.layers.0.mlp.down_proj.weight_scale_inv": ("fp32", (1, 2)),
        "model.layers.0.mlp.gate_proj.weight": ("fp8_e4m3", (256, 128)),
        "model.layers.0.mlp.gate_proj.weight_scale_inv": ("fp32", (2, 1)),
    }
    record = take_inventory(make_release({"num_hidden_layers": 1}, tensors))
    messages = sorted(finding.message for finding in record.findings if finding.code == "INV023")
    assert messages == [
        "model.layers.{l}.mlp.down_proj.weight_scale_inv has no weight, in 1 of 1 tensor (layer 0)",
        "model.layers.{l}.mlp.up_proj.weight has no scale, in 1 of 1 tensor (layer 0)",
    ]


def test_prediction_layers_declared_and_not_stored() -> None:
    found = findings({**MIXTRAL, "num_nextn_predict_layers": 1}, mixtral_tensors())
    assert found["INV025"].severity == "info"


def test_unknown_number_of_experts_per_token() -> None:
    config = {key: value for key, value in MIXTRAL.items() if key != "num_experts_per_tok"}
    assert findings(config, mixtral_tensors())["INV026"].verdict == "unverified"


@pytest.mark.parametrize("layers", [10**6, 2**50])
def test_absurd_statements_are_shown_and_ignored(layers: int) -> None:
    config = {**MIXTRAL, "num_hidden_layers": layers}
    record = take_inventory(make_release(config, mixtral_tensors()))
    assert len(record.facts.layers) == 2
    (finding,) = [finding for finding in record.findings if "num_hidden_layers" in finding.message]
    assert finding.severity == "error"  # there are two of them


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": "many", "num_hidden_layers": [1, "x"], "architectures": 3, "auto_map": ["a"]},
        {"text_config": [], "quantization_config": "fp8", "layer_types": [1, 2], "torch_dtype": 4},
        {"num_hidden_layers": True, "num_attention_heads": -4, "rope_scaling": {"type": ["x"]}},
        {"num_hidden_layers": 1.0, "quantization_config": {"config_groups": [1]}},
        {"num_hidden_layers": 2, "linear_attn_config": {"full_attn_layers": "x"}, "moe_layer_freq": [1]},
        {"text_config": {"text_config": {"text_config": {"text_config": {}}}}, "tie_word_embeddings": "yes"},
        {"quantization_config": {"quant_method": 7, "weight_block_size": ["a"], "bits": -1}},
    ],
)
def test_broken_configs_end_in_a_record(config: dict[str, Any]) -> None:
    assert take_inventory(make_release(config, mixtral_tensors())).facts.totals.tensors == 41


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8), st.lists(st.integers(-2, 9), max_size=4),
    st.dictionaries(st.sampled_from(["type", "num_bits", "strategy", "weights", "a"]), st.integers(-1, 9)),
)  # fmt: skip
_KEYS = st.sampled_from(
    [*(key for keys in KEYS.values() for key in keys), "layer_types", "text_config", "quantization_config",
     "sliding_window_pattern", "kv_lora_rank", "linear_attn_config", "full_attention_interval",
     "hybrid_override_pattern", "num_kv_shared_layers", "rope_scaling", "auto_map", "architectures",
     "first_k_dense_replace", "moe_layer_freq"]
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(config=st.dictionaries(_KEYS, _VALUES, max_size=12))
def test_any_config_ends_in_a_record(config: dict[str, Any]) -> None:
    assert take_inventory(make_release(config, mixtral_tensors())).facts.totals.tensors == 41


_SEGMENTS = st.sampled_from(
    ["model", "layers", "0", "1", "77777777777", "experts", "weight", "weight_scale", "weight_scale_inv",
     "scale", "mlp", "self_attn", "qweight", "weight_packed", "absmax", "gate", "mtp", "vision_tower", "{l}",
     "", "_blocks", "_scales", "quant_state", "lm_head", "embed_tokens", "blk", "h", "\u0663", "up_proj"]
)  # fmt: skip
_KINDS = st.tuples(
    st.sampled_from(["bf16", "fp32", "int8", "uint8", "int32", "fp8_e4m3", "e8m0", "bool", "fp4_e2m1"]),
    st.lists(st.integers(0, 2**20), max_size=4),
)


@settings(max_examples=120, deadline=None)
@given(
    tensors=st.dictionaries(st.lists(_SEGMENTS, max_size=6).map(".".join), _KINDS, min_size=1, max_size=10),
    config=st.sampled_from([MIXTRAL, {}, {"num_hidden_layers": 1, "num_nextn_predict_layers": 1}]),
)
def test_any_names_and_shapes_end_in_a_record(tensors: Tensors, config: dict[str, Any]) -> None:
    record = take_inventory(make_release(config, tensors))
    facts = record.facts
    assert facts.totals.tensors == len(tensors)
    assert sum(row.tensors for row in facts.patterns) == len(tensors)
    assert sum(row.params for row in facts.patterns) == facts.totals.logical_params
    assert sum(row.bytes for row in facts.patterns) == facts.totals.data_bytes
    assert InventoryRecord.model_validate_json(record.model_dump_json()).facts_digest == record.facts_digest
    assert record.facts.distribution is not None
