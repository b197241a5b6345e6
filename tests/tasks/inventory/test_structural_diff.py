"""What is structurally new: told as a person would, exact in its index sets, silent where nothing is."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.structural_change import Renamed, StructuralDiff
from day0.tasks.inventory.structural_diff import structural_diff
from day0.tasks.inventory.take import take_inventory
from support.layouts import expand_layout, make_release
from support.small_releases import MIXTRAL, SMOLLM2, Tensors, mixtral_tensors, smollm2_tensors

DEEPSEEK = "deepseek-ai--DeepSeek-R1"
INDEXER = {
    "k_norm.bias": ("fp32", (128,)),
    "k_norm.weight": ("fp32", (128,)),
    "weights_proj.weight": ("bf16", (64, 7168)),
    "wk.weight": ("fp8_e4m3", (128, 7168)),
    "wq_b.weight": ("fp8_e4m3", (8192, 1536)),
}
SCALES = {"wk.weight_scale_inv": ("fp32", (1, 56)), "wq_b.weight_scale_inv": ("fp32", (64, 12))}


def deepseek_tensors() -> Tensors:
    """DeepSeek-V3's layout with three of its experts, so that it is quickly read."""
    kept = tuple(f".experts.{number}." for number in range(3, 256))
    return {
        name: (dtype, shape)
        for name, dtype, shape in expand_layout(DEEPSEEK)
        if not any(mark in name for mark in kept)
    }


def deepseek_config(**changes: Any) -> dict[str, Any]:
    known = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
        "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "num_attention_heads": 128,
        "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 3, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 2048, "intermediate_size": 18432,
        "first_k_dense_replace": 3, "vocab_size": 129280, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }  # fmt: skip
    return {**known, **changes}


@cache
def version_3() -> InventoryRecord:
    return take_inventory(make_release(deepseek_config(), deepseek_tensors()))


@cache
def version_3_2() -> InventoryRecord:
    """Five indexer tensors in each layer, norms in F32, as V3.2 has them."""
    tensors: Tensors = {
        name: ("fp32" if "norm" in name else dtype, shape)
        for name, (dtype, shape) in deepseek_tensors().items()
    }
    for layer in range(62):
        for name, kind in {**INDEXER, **SCALES}.items():
            tensors[f"model.layers.{layer}.self_attn.indexer.{name}"] = kind
    changes = {"model_type": "deepseek_v32", "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
    config = deepseek_config(**changes, architectures=["DeepseekV32ForCausalLM"])
    return take_inventory(make_release(config, tensors))


def small(tensors: Tensors | None = None, **changes: Any) -> InventoryRecord:
    return take_inventory(make_release({**SMOLLM2, **changes}, tensors or smollm2_tensors()))


def topics(diff: StructuralDiff, topic: str) -> dict[str, tuple[Any, Any]]:
    return {change.name: (change.before, change.after) for change in diff.changed if change.topic == topic}


def no_tensor_changed(diff: StructuralDiff) -> bool:
    return not any((diff.new, diff.removed, diff.dtypes, diff.shapes, diff.placed))


def test_v3_to_v3_2_is_five_new_roles_and_norms_in_f32() -> None:
    diff = structural_diff(version_3(), version_3_2())
    assert diff.headline.startswith("Five new tensor roles per layer, norms went from BF16 to F32, ")
    new = {role.pattern.rpartition("indexer.")[2]: role for role in diff.new if not role.side}
    assert set(new) == set(INDEXER)
    assert {role.layers for role in diff.new} == {"0-61"}
    assert len([role for role in diff.new if role.side]) == len(SCALES)
    assert new["wk.weight"].shapes == [(128, 7168)]
    assert new["wk.weight"].kinds == ["sparse_indexed dense", "sparse_indexed moe"]
    assert diff.removed == [] == diff.shapes
    norms = next(change for change in diff.dtypes if change.role == "norm")
    assert (norms.before, norms.after, norms.layers, len(norms.patterns)) == ("bf16", "fp32", "0-61", 5)
    assert topics(diff, "layers")["kind of layers 3-60"] == ("mla moe", "sparse_indexed moe")
    assert topics(diff, "config")["/index_topk"] == (None, 2048)


def test_back_from_v3_2_they_are_removed() -> None:
    diff = structural_diff(version_3_2(), version_3())
    assert diff.headline.startswith("Five removed tensor roles per layer, norms went from F32 to BF16, ")
    assert len(diff.removed) == len(INDEXER) + len(SCALES)


def test_the_same_release_twice_says_nothing_changed() -> None:
    diff = structural_diff(version_3(), version_3())
    assert (diff.same, diff.headline) == (True, "Nothing changed.")
    assert no_tensor_changed(diff)
    assert list(diff.changed) == []


def test_a_renamed_prefix_is_no_news() -> None:
    renamed: Tensors = {f"language_model.{name}": kind for name, kind in smollm2_tensors().items()}
    diff = structural_diff(small(), small(renamed))
    assert diff.renamed == (Renamed(before="", after="language_model", patterns=11),)
    assert no_tensor_changed(diff)
    assert not diff.same
    assert "language_model" in diff.headline


def test_a_prefix_inside_the_names_is_found_too() -> None:
    renamed: Tensors = {
        name.replace("model.layers.", "model.language_model.layers."): kind
        for name, kind in smollm2_tensors().items()
    }
    diff = structural_diff(small(), small(renamed))
    assert [(item.before, item.after) for item in diff.renamed] == [("model", "model.language_model")]
    assert no_tensor_changed(diff)


def test_a_vision_tower_beside_the_renamed_text_model() -> None:
    tensors: Tensors = {f"language_model.{name}": kind for name, kind in smollm2_tensors().items()}
    for layer in range(2):
        tensors[f"vision_tower.layers.{layer}.self_attn.q_proj.weight"] = ("bf16", (64, 64))
        tensors[f"vision_tower.layers.{layer}.input_layernorm.weight"] = ("bf16", (64,))
    diff = structural_diff(small(), small(tensors))
    assert {role.part for role in diff.new} == {"vision"}
    assert diff.removed == []
    assert diff.headline.startswith("A vision tower is new")


def test_experts_and_top_k() -> None:
    tensors = mixtral_tensors()
    for layer in range(2):
        root = f"model.layers.{layer}.block_sparse_moe"
        tensors[f"{root}.gate.weight"] = ("bf16", (6, 32))
        for expert in (4, 5):
            for name, shape in (("w1", (64, 32)), ("w2", (32, 64)), ("w3", (64, 32))):
                tensors[f"{root}.experts.{expert}.{name}.weight"] = ("bf16", shape)
    before = take_inventory(make_release(MIXTRAL, mixtral_tensors()))
    config = {**MIXTRAL, "num_local_experts": 6, "num_experts_per_tok": 3}
    diff = structural_diff(before, take_inventory(make_release(config, tensors)))
    assert diff.headline.startswith("Experts 4 to 6, experts per token 2 to 3")
    assert topics(diff, "experts") == {"experts": (4, 6), "top_k": (2, 3)}
    (moved,) = diff.placed
    assert (moved.what, moved.before, moved.after, len(moved.patterns)) == ("tensors a layer", "4", "6", 3)
    (grown,) = diff.shapes
    assert (grown.before, grown.after, grown.layers) == ((4, 32), (6, 32), "0-1")


def test_another_packing_is_another_dtype_and_no_new_role() -> None:
    packed: Tensors = {}
    for name, (dtype, shape) in smollm2_tensors().items():
        if "mlp" in name:
            base = name.removesuffix("weight")
            packed[f"{base}weight_packed"] = ("int32", (shape[0], shape[1] // 8))
            packed[f"{base}weight_scale"] = ("bf16", (shape[0], shape[1] // 32))
        else:
            packed[name] = (dtype, shape)
    form = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
    }  # fmt: skip
    diff = structural_diff(small(), small(packed, quantization_config=form))
    assert diff.headline.startswith(
        "Dense blocks went from BF16 to int4 (packed), quantisation none to int4_group"
    )
    assert [role.side for role in diff.new] == [True] * 3
    assert diff.removed == [] == diff.shapes
    assert topics(diff, "quantization")["scheme"] == ("none", "int4_group")


def test_layers_more_or_fewer() -> None:
    fewer = {name: kind for name, kind in smollm2_tensors().items() if ".layers.29." not in name}
    diff = structural_diff(small(), small(fewer, num_hidden_layers=29))
    (moved,) = diff.placed
    assert (moved.before, moved.after, len(moved.patterns)) == ("0-29", "0-28", 9)
    assert diff.headline == "Layers 30 to 29, KV bytes per token 23,040 to 22,272."


def test_config_keys_by_pointer() -> None:
    diff = structural_diff(small(), small(rope_theta=500000, eos_token_id=[1, 2]))
    assert topics(diff, "config") == {"/rope_theta": (100000, 500000), "/eos_token_id": (None, [1, 2])}
    assert diff.headline.startswith("No tensor changed")


def test_a_nested_text_config_is_looked_into() -> None:
    nested = {"architectures": ["X"], "model_type": "x", "text_config": {**SMOLLM2, "hidden_act": "gelu"}}
    after = take_inventory(make_release(nested, smollm2_tensors()))
    found = topics(structural_diff(small(), after), "config")
    assert found["/text_config/hidden_act"] == ("silu", "gelu")
    assert "/text_config/num_hidden_layers" not in found


def test_many_config_keys_are_bounded() -> None:
    keys: dict[str, Any] = {f"key_{number}": number for number in range(300)}
    diff = structural_diff(small(), small(**keys))
    assert len(topics(diff, "config")) + diff.more_config == 300
    assert diff.more_config == 200


@pytest.mark.parametrize("order", [1, -1])
def test_a_bare_config_against_a_release(order: int) -> None:
    pair = [take_inventory(make_release(SMOLLM2, {}), expected=False), small()][::order]
    diff = structural_diff(pair[0], pair[1])
    assert "tensors are known only of the" in diff.headline.lower()


def test_a_diff_is_strict_json() -> None:
    diff = structural_diff(version_3(), version_3_2())
    assert StructuralDiff.model_validate_json(diff.model_dump_json()).headline == diff.headline


def test_what_neither_release_states_is_no_change() -> None:
    mixture = take_inventory(make_release(MIXTRAL, mixtral_tensors()))
    found = structural_diff(mixture, small())
    assert found.changed
    empty: tuple[object, ...] = (None, "", [], {}, ())
    assert not [item for item in found.changed if item.before in empty and item.after in empty]
