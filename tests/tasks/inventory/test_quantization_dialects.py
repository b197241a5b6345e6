"""Sections and files of every dialect, in the shapes that their writers give them, in the normal form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from day0.tasks.inventory.quantization import DeclaredQuantization, declared_quantization
from day0.tasks.inventory.record_quantization import Quantization
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import MIXTRAL, mixtral_tensors


def normal(section: Any, key: str = "quantization_config") -> Quantization:
    declared = declared_quantization({key: section})
    assert declared.normal is not None
    assert declared.known
    return declared.normal


def of_file(name: str, content: Any) -> DeclaredQuantization:
    return declared_quantization({}, {name: json.dumps(content).encode()})


def group(
    weights: dict[str, Any], targets: list[str], activations: Any = None, **more: Any
) -> dict[str, Any]:
    return {"weights": weights, "input_activations": activations, "targets": targets, **more}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False}
FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
LOCAL = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}


def compressed(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{number}": item for number, item in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **more}


def modelopt(algorithm: Any, **more: Any) -> dict[str, Any]:
    return {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm, **more}}


def quark(dtype: str, scheme: str, size: Any = None, **more: Any) -> dict[str, Any]:
    weight = {
        "dtype": dtype,
        "qscheme": scheme,
        "group_size": size,
        "is_dynamic": False,
        "symmetric": True,
        **more,
    }
    inputs = {"dtype": dtype, "qscheme": scheme, "group_size": size, "is_dynamic": True}
    return {
        "quant_method": "quark",
        "global_quant_config": {
            "weight": weight,
            "input_tensors": inputs,
            "output_tensors": None,
            "bias": None,
        },
        "exclude": ["lm_head"],
        "layer_quant_config": {},
    }


def torchao(kind: str, **data: Any) -> dict[str, Any]:
    return {
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": kind, "_version": 1, "_data": data}},
    }


@pytest.mark.parametrize(
    ("section", "form"),
    [
        # fp8 of transformers and its kin
        ({"quant_method": "fp8", "weight_block_size": [64, 128]}, ("fp8_block", 8, [64, 128])),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, ("fp8_tensor", 8, 0)),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, ("fp8_channel", 8, 0)),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, ("mxfp4", 4, 32)),
        ({"quant_method": "nvfp4"}, ("nvfp4", 4, 16)),
        # GPTQ, AWQ, AutoRound
        ({"quant_method": "gptq", "bits": 3, "group_size": 64, "sym": True}, ("gptq", 3, 64)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, ("gptq", 8, 0)),
        ({"bits": 4, "group_size": 128, "desc_act": False}, ("gptq", 4, 128)),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, ("awq", 4, 64)),
        ({"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMV"}, ("awq", 4, 128)),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "sym": True,
                "packing_format": "auto_round:auto_gptq",
            },
            ("gptq", 4, 128),
        ),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 32,
                "packing_format": "auto_round:auto_awq",
            },
            ("awq", 4, 32),
        ),
        # bitsandbytes
        (
            {"quant_method": "bitsandbytes", "_load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
            ("bnb", 4, 64),
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bnb", 8, 0)),
        # compressed-tensors
        (compressed(group(INT4, ["Linear"])), ("int4_group", 4, 128)),
        (compressed(group(NVFP4, ["Linear"], LOCAL), format="nvfp4-pack-quantized"), ("nvfp4", 4, 16)),
        (
            compressed(
                group({**NVFP4, "strategy": "group", "group_size": 32}, ["Linear"]),
                format="mxfp4-pack-quantized",
            ),
            ("mxfp4", 4, 32),
        ),
        (
            compressed(group({**FP8, "strategy": "block", "block_structure": [128, 128]}, ["Linear"])),
            ("fp8_block", 8, [128, 128]),
        ),
        (
            compressed(group({**FP8, "strategy": "group", "group_size": 32}, ["Linear"])),
            ("fp8_block", 8, [1, 32]),
        ),
        (
            compressed(group({"num_bits": 8, "type": "int", "strategy": "channel"}, ["Linear"])),
            ("int8", 8, 0),
        ),
        (compressed(group({**INT4, "num_bits": 3}, ["Linear"])), ("mixed", 3, 128)),
        (compressed(group(INT4, ["re:.*experts.*"]), group(FP8, ["re:.*self_attn.*"])), ("mixed", 0, 0)),
        (
            compressed(group(INT4, ["Linear"]), group({**INT4, "group_size": 32}, ["re:.*down_proj"])),
            ("int4_group", 4, 0),
        ),
        # modelopt, pasted into config.json in both ways
        (modelopt("FP8"), ("fp8_tensor", 8, 0)),
        (modelopt("FP8_PER_CHANNEL_PER_TOKEN"), ("fp8_channel", 8, 0)),
        (modelopt("FP8_BLOCK_SCALES", group_size=128), ("fp8_block", 8, [128, 128])),
        (modelopt("MXFP8"), ("fp8_block", 8, [1, 32])),
        (modelopt("NVFP4", group_size=16), ("nvfp4", 4, 16)),
        (modelopt("W4A8_AWQ", group_size=64), ("awq", 4, 64)),
        (modelopt("INT8_SQ"), ("int8", 8, 0)),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": 16}, ("nvfp4", 4, 16)),
        ({"quant_method": "modelopt_fp4", "quant_algo": "nvfp4"}, ("nvfp4", 4, 16)),
        (
            modelopt(
                "MIXED_PRECISION",
                quantized_layers={
                    "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
                },
            ),
            ("mixed", 0, 0),
        ),
        (
            modelopt(
                "MIXED_PRECISION",
                quantized_layers={
                    "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                    "model.layers.0.mlp.gate_proj": {"quant_algo": "UNQUANTIZED"},
                },
            ),
            ("nvfp4", 4, 16),
        ),
        (modelopt(None, kv_cache_quant_algo="FP8"), ("none", 0, 0)),
        # Quark
        (quark("fp8_e4m3", "per_tensor"), ("fp8_tensor", 8, 0)),
        (quark("Dtype.fp8_e4m3", "per_channel"), ("fp8_channel", 8, 0)),
        (quark("fp4", "per_group", 32, scale_format="e8m0"), ("mxfp4", 4, 32)),
        (quark("int4", "per_group", 128), ("int4_group", 4, 128)),
        (quark("int8", "per_tensor"), ("int8", 8, 0)),
        (
            {
                **quark("fp8_e4m3", "per_tensor"),
                "layer_quant_config": {
                    "*experts*": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}
                },
            },
            ("mixed", 0, 0),
        ),
        # torchao
        (torchao("Int4WeightOnlyConfig", group_size=32), ("int4_group", 4, 32)),
        (torchao("Int8WeightOnlyConfig"), ("int8", 8, 0)),
        (torchao("Int8DynamicActivationInt8WeightConfig"), ("int8", 8, 0)),
        (
            torchao("Float8DynamicActivationFloat8WeightConfig", granularity=[{"_type": "PerRow"}]),
            ("fp8_channel", 8, 0),
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": "int4_weight_only",
                "quant_type_kwargs": {"group_size": 64},
            },
            ("int4_group", 4, 64),
        ),
        # MLX
        ({"group_size": 64, "bits": 8}, ("int8", 8, 64)),
        ({"group_size": 64, "bits": 6}, ("mixed", 6, 64)),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, ("mxfp4", 4, 32)),
        (
            {"group_size": 64, "bits": 4, "model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 6}},
            ("mixed", 0, 0),
        ),
        # the rest of transformers' quantizers
        (
            {
                "quant_method": "hqq",
                "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}},
                "skip_modules": ["lm_head"],
            },
            ("int4_group", 4, 64),
        ),
        ({"quant_method": "eetq", "weights": "int8"}, ("int8", 8, 0)),
        ({"quant_method": "quanto", "weights": "int4"}, ("int4_group", 4, 0)),
        ({"quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 16}, ("mixed", 2, 0)),
        ({"quant_method": "vptq", "config_for_layers": {}}, ("mixed", 2, 0)),
        ({"quant_method": "spqr", "bits": 3, "beta1": 16}, ("mixed", 3, 0)),
        ({"quant_method": "smoothquant", "bits": 8}, ("int8", 8, 0)),
        ({"quant_method": "modelslim"}, ("modelslim", 8, 0)),
    ],
)
def test_normal_form(section: dict[str, Any], form: tuple[str, int, Any]) -> None:
    found = normal(section)
    assert (found.scheme, found.bits, found.group) == form


@pytest.mark.parametrize("key", ["quantization_config", "compression_config", "quantization"])
@pytest.mark.parametrize("depth", range(4))
def test_sections_at_any_depth(key: str, depth: int) -> None:
    config: dict[str, Any] = {key: {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    for _ in range(depth):
        config = {"text_config": config}
    declared = declared_quantization(config)
    assert declared.normal is not None
    assert declared.pointer == "/text_config" * depth + f"/{key}"
    assert declared.normal.scheme == "fp8_block"


def test_mixed_parts_keep_their_targets_and_activations() -> None:
    static = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
    section = compressed(
        group(INT4, ["re:.*experts.*"]),
        group(FP8, ["re:.*self_attn.*", "re:.*mlp"], static),
        kv_cache_scheme={"num_bits": 8, "type": "float", "dynamic": False},
    )
    found = normal(section)
    experts, attention = found.parts
    assert (experts.scheme, experts.bits, experts.group) == ("int4_group", 4, 128)
    assert list(experts.targets) == ["re:.*experts.*"]
    assert experts.activations is None
    assert (attention.scheme, list(attention.targets)) == ("fp8_tensor", ["re:.*self_attn.*", "re:.*mlp"])
    assert attention.activations is not None
    assert attention.activations.dynamic is False
    assert found.kv_cache is not None
    assert (found.kv_cache.dtype, found.kv_cache.scheme) == ("fp8_e4m3", "float 8 bits static")


@pytest.mark.parametrize(
    ("declared", "dtype"),
    [
        ("FP8", "fp8_e4m3"),
        ("fp8_e5m2", "fp8_e5m2"),
        ("INT8", "int8"),
        ("NVFP4", "fp4_e2m1"),
        ({"num_bits": 8, "type": "float", "dynamic": True}, "fp8_e4m3"),
        ({"num_bits": 8, "type": "int"}, "int8"),
        ({"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}, "*v_proj": {}}, "fp8_e4m3"),
        ("auto", ""),
        ("", ""),
        ({}, ""),
        (7, ""),
        ([1], ""),
        ("int3", "unknown"),
    ],
)
def test_kv_cache_in_every_form(declared: Any, dtype: str) -> None:
    found = normal({"quant_method": "fp8", "kv_cache_scheme": declared})
    assert (found.kv_cache.dtype if found.kv_cache else "") == dtype


def test_symmetry_and_zero_points() -> None:
    assert normal(compressed(group(INT4, ["Linear"]))).symmetric is False
    assert normal({"quant_method": "gptq", "bits": 4, "sym": True}).symmetric is True
    assert normal({"quant_method": "awq", "bits": 4, "zero_point": True}).symmetric is False
    assert normal({"quant_method": "gptq", "bits": 4}).symmetric is None


@pytest.mark.parametrize(
    ("name", "content", "form", "source"),
    [
        (
            "hf_quant_config.json",
            modelopt("NVFP4", group_size=16, exclude_modules=["lm_head"]),
            ("nvfp4", 4, 16),
            "hf_quant_config.json#/quantization",
        ),
        (
            "quantize_config.json",
            {
                "bits": 4,
                "group_size": 128,
                "damp_percent": 0.1,
                "desc_act": True,
                "sym": True,
                "true_sequential": True,
            },
            ("gptq", 4, 128),
            "quantize_config.json#",
        ),
        (
            "quant_config.json",
            {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"},
            ("awq", 4, 64),
            "quant_config.json#",
        ),
        (
            "quant_model_description.json",
            {
                "model_quant_type": "W8A8_DYNAMIC",
                "model.norm.weight": "FLOAT",
                "model.layers.0.mlp.up_proj.weight": "W8A8_DYNAMIC",
            },
            ("modelslim", 8, 0),
            "quant_model_description.json#",
        ),
        (
            "quant_model_description_w4a8.json",
            {
                "model_quant_type": "W4A8_DYNAMIC",
                "lm_head.weight": "FLOAT",
                "model.layers.0.mlp.up_proj.weight": "W4A8_DYNAMIC",
                "model.layers.0.self_attn.q_proj.weight": "W8A8_DYNAMIC",
            },
            ("mixed", 0, 0),
            "quant_model_description_w4a8.json#",
        ),
    ],
)
def test_files_of_their_own(name: str, content: Any, form: tuple[str, int, Any], source: str) -> None:
    declared = of_file(name, content)
    assert declared.normal is not None
    assert (declared.normal.scheme, declared.normal.bits, declared.normal.group) == form
    assert declared.source == source
    assert declared.pointer == ""
    assert [item.source for item in declared.normal.sources] == [source]


def test_modelslim_keeps_what_it_leaves_plain() -> None:
    words = {
        "model_quant_type": "W8A8",
        "lm_head.weight": "FLOAT",
        "model.norm.weight": "FLOAT",
        "model.layers.0.mlp.up_proj.weight": "W8A8",
        "model.layers.0.mlp.up_proj.deq_scale": "W8A8",
        "model.layers.0.mlp.gate.weight": "FLOAT",
    }
    declared = of_file("quant_model_description.json", words)
    assert declared.normal is not None
    assert list(declared.normal.excluded) == ["lm_head", "model.layers.0.mlp.gate"]
    assert declared.normal.activations is not None
    assert declared.normal.activations.dynamic is False


def test_the_config_comes_first_and_every_source_is_kept() -> None:
    files = {"hf_quant_config.json": json.dumps(modelopt("NVFP4")).encode()}
    declared = declared_quantization({"quantization_config": {"quant_method": "fp8"}}, files)
    assert declared.normal is not None
    assert declared.normal.scheme == "fp8_tensor"
    assert [(item.source, item.scheme) for item in declared.normal.sources] == [
        ("config.json#/quantization_config", "fp8_tensor"),
        ("hf_quant_config.json#/quantization", "nvfp4"),
    ]


def test_an_unknown_dialect_is_kept_raw() -> None:
    section = {"quant_method": "fantasy", "levels": 7, "modules_to_not_convert": ["lm_head"]}
    declared = declared_quantization({"quantization_config": section})
    assert declared.normal is not None
    assert not declared.known
    assert json.loads(declared.normal.raw) == section
    assert list(declared.normal.excluded) == ["lm_head"]
    record = take_inventory(make_release({**MIXTRAL, "quantization_config": section}, mixtral_tensors()))
    assert {finding.code for finding in record.findings} >= {"INV031"}
    assert record.facts.quantization.raw == declared.normal.raw
    assert record.facts.quantization.dialect == "fantasy"
