"""Weights and their side tensors, format by format: what fits, what is missing, what is out of shape."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.scale_shapes import block_of_scale, floating_scale, normalised
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import Tensors

M = "model.layers.0.mlp.up_proj"
X = "model.layers.0.mlp.experts"
CODES = {"INV023", "INV050", "INV051", "INV058", "INV059"}
BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def taken(tensors: Tensors, section: dict[str, Any] | None = None) -> InventoryRecord:
    config = {"num_hidden_layers": 1} | ({"quantization_config": section} if section else {})
    return take_inventory(make_release(config, tensors))


def codes(record: InventoryRecord) -> set[str]:
    return {finding.code for finding in record.findings} & CODES


@pytest.mark.parametrize(
    ("tensors", "section", "form", "logical"),
    [
        (
            {
                f"{X}.gate_up_proj": ("fp8_e4m3", (4, 576, 256)),
                f"{X}.gate_up_proj_scale_inv": ("fp32", (4, 5, 2)),
            },
            BLOCK,
            ("fp8_block", 8, [128, 128]),
            4 * 576 * 256,
        ),
        (
            {
                f"{X}.gate_up_proj": ("fp8_e4m3", (4, 256, 512)),
                f"{X}.gate_up_proj_scale": ("fp32", (4, 1, 512)),
            },
            {"quant_method": "fbgemm_fp8"},
            ("fp8_channel", 8, 0),
            4 * 256 * 512,
        ),
        (
            {
                f"{X}.down_proj": ("uint8", (4, 512, 128)),
                f"{X}.down_proj_scale": ("fp8_e4m3", (4, 512, 16)),
                f"{X}.down_proj_scale_2": ("fp32", (4,)),
            },
            {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
            ("nvfp4", 4, 16),
            4 * 512 * 256,
        ),
        (
            {
                f"{M}.weight_packed": ("uint8", (64, 32)),
                f"{M}.weight_scale": ("fp8_e4m3", (64, 4)),
                f"{M}.weight_global_scale": ("fp32", (1,)),
                f"{M}.input_global_scale": ("fp32", (1,)),
            },
            None,
            ("nvfp4", 4, 16),
            64 * 64,
        ),
        (
            {f"{M}.weight": ("fp8_e4m3", (64, 64)), f"{M}.weight_scale": ("e8m0", (64, 2))},
            None,
            ("fp8_block", 8, [1, 32]),
            64 * 64,
        ),
        (
            {f"{M}.weight": ("int8", (64, 64)), f"{M}.weight_scale": ("bf16", (64, 1))},
            None,
            ("int8", 8, 0),
            4096,
        ),
        (
            {f"{M}.weight": ("int8", (64, 32)), f"{M}.weight_scales": ("fp16", (32,))},
            {"quant_method": "eetq"},
            ("int8", 8, 0),
            64 * 32,
        ),
        (
            {
                f"{M}.weight": ("int8", (64, 32)),
                f"{M}.SCB": ("fp32", (64,)),
                f"{M}.weight_format": ("uint8", ()),
            },
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            ("bnb", 8, 0),
            64 * 32,
        ),
        (
            {
                f"{M}.W_q": ("uint8", (32, 64)),
                f"{M}.scale": ("bf16", (64, 1)),
                f"{M}.zero": ("bf16", (64, 1)),
                f"{M}.shape": ("int64", (2,)),
            },
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            ("int4_group", 4, 64),
            64 * 64,
        ),
        (
            {f"{M}.W_q": ("int32", (7, 64)), f"{M}.scale": ("bf16", (64, 1)), f"{M}.zero": ("bf16", (64, 1))},
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}}},
            ("mixed", 3, 64),
            64 * 64,
        ),
        (
            {f"{M}.weight._data": ("int8", (64, 32)), f"{M}.weight._scale": ("bf16", (64, 1))},
            {"quant_method": "quanto", "weights": "int8"},
            ("int8", 8, 0),
            64 * 32,
        ),
        (
            {
                f"{M}.weight_qdata": ("uint8", (64, 32)),
                f"{M}.weight_scale": ("bf16", (64, 2)),
                f"{M}.weight_zero_point": ("bf16", (64, 2)),
            },
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}},
            },
            ("int4_group", 4, 32),
            64 * 64,
        ),
        (
            {
                f"{M}.codes": ("int16", (64, 16, 1)),
                f"{M}.codebooks": ("fp16", (1, 65536, 1, 8)),
                f"{M}.scales": ("fp16", (64, 1, 1, 1)),
            },
            {"quant_method": "aqlm"},
            ("mixed", 2, 0),
            64 * 128,
        ),
        (
            {
                f"{M}.weight": ("uint8", (64, 256)),
                f"{M}.weight_scale": ("fp32", (128, 2)),
                f"{M}.pre_quant_scale": ("bf16", (256,)),
            },
            {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
            ("awq", 4, 128),
            128 * 256,
        ),
        (
            {
                f"{M}.weight": ("int8", (64, 256)),
                f"{M}.weight_scale": ("fp32", (128, 1)),
                f"{M}.weight_offset": ("fp32", (128, 1)),
                f"{M}.weight_scale_second": ("fp32", (128, 1)),
                f"{M}.scale_bias": ("fp32", (128, 1)),
            },
            None,
            ("modelslim", 4, 0),
            128 * 256,
        ),
        (
            {
                f"{M}.qweight": ("int16", (16, 64)),
                f"{M}.scales": ("fp16", (8, 64)),
                f"{M}.qzeros": ("fp16", (8, 64)),
            },
            {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv_fast"},
            ("awq", 4, 32),
            64 * 64,
        ),
        (
            {f"{M}.B": ("int32", (4, 128)), f"{M}.s": ("fp16", (1, 64))},
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
            ("gptq", 4, 0),
            64 * 64,
        ),
        (
            {
                f"{M}.q_weight": ("int32", (20, 64)),
                f"{M}.q_invperm": ("int16", (128,)),
                f"{M}.q_scale": ("int32", (4, 8)),
                f"{M}.q_groups": ("int16", (8,)),
            },
            {"quant_method": "exl2", "bits": 5},
            ("mixed", 5, 0),
            128 * 64,
        ),
        (
            {f"{M}.weight": ("fp4_e2m1", (64, 64)), f"{M}.weight_scale": ("e8m0", (64, 2))},
            None,
            ("mxfp4", 4, 32),
            64 * 64,
        ),
        (
            {f"{M}.weight": ("uint8", (16, 64)), f"{M}.weight_scale": ("bf16", (1,))},
            {"quant_method": "bitnet"},
            ("mixed", 2, 0),
            64 * 64,
        ),
        (
            {f"{M}.weight": ("fp8_e4m3", (0, 128)), f"{M}.weight_scale_inv": ("fp32", (0, 1))},
            BLOCK,
            ("fp8_block", 8, [128, 128]),
            0,
        ),
        (
            {
                "layers.0.attention.wq.weight": ("fp8_e4m3", (64, 64)),
                "layers.0.attention.wq.qscale_weight": ("fp32", ()),
                "layers.0.attention.wq.qscale_act": ("fp32", ()),
            },
            None,
            ("fp8_tensor", 8, 0),
            64 * 64,
        ),
    ],
)
def test_whole_formats(
    tensors: Tensors, section: dict[str, Any] | None, form: tuple[str, int, Any], logical: int
) -> None:
    record = taken(tensors, section)
    found = record.facts.quantization
    assert record.facts.totals.logical_params == logical
    assert (found.scheme, found.bits, found.group) == form
    assert (found.checks.weights, found.checks.with_scale) == (1, 1)
    assert codes(record) == set()


GPTQ: Tensors = {
    f"{M}.qweight": ("int32", (8, 64)),
    f"{M}.scales": ("fp16", (2, 64)),
    f"{M}.qzeros": ("int32", (2, 8)),
    f"{M}.g_idx": ("int32", (64,)),
}
PACKED: Tensors = {
    f"{M}.weight_packed": ("int32", (64, 8)),
    f"{M}.weight_scale": ("bf16", (64, 2)),
    f"{M}.weight_shape": ("int32", (2,)),
    f"{M}.weight_zero_point": ("int32", (8, 2)),
}
NVFP4: Tensors = {
    f"{M}.weight": ("uint8", (64, 32)),
    f"{M}.weight_scale": ("fp8_e4m3", (64, 4)),
    f"{M}.weight_scale_2": ("fp32", ()),
}
MLX: Tensors = {
    f"{M}.weight": ("uint32", (64, 8)),
    f"{M}.scales": ("bf16", (64, 2)),
    f"{M}.biases": ("bf16", (64, 2)),
}
BNB: Tensors = {
    f"{M}.weight": ("uint8", (2048, 1)),
    f"{M}.weight.absmax": ("uint8", (64,)),
    f"{M}.weight.nested_absmax": ("fp32", (1,)),
    f"{M}.weight.quant_map": ("fp32", (16,)),
    f"{M}.weight.quant_state.bitsandbytes__nf4": ("uint8", (90,)),
}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}},
}
ASYMMETRIC = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True}


@pytest.mark.parametrize(
    ("tensors", "section", "lost", "code", "severity"),
    [
        (GPTQ, ASYMMETRIC, "qzeros", "INV050", "error"),
        (GPTQ, ASYMMETRIC, "g_idx", "INV050", "error"),
        (GPTQ, {**ASYMMETRIC, "sym": True, "desc_act": False}, "qzeros", "", ""),
        (GPTQ, {**ASYMMETRIC, "sym": True, "desc_act": False}, "g_idx", "", ""),
        (GPTQ, ASYMMETRIC, "scales", "INV023", "error"),
        (PACKED, COMPRESSED, "weight_zero_point", "INV050", "error"),
        (PACKED, COMPRESSED, "weight_shape", "INV050", "warning"),
        (PACKED, COMPRESSED, "weight_scale", "INV023", "error"),
        (NVFP4, None, "weight_scale_2", "INV050", "error"),
        (MLX, {"bits": 4, "group_size": 32}, "biases", "INV050", "error"),
        (BNB, None, "weight.quant_state.bitsandbytes__nf4", "INV050", "error"),
        (BNB, None, "weight.nested_absmax", "INV050", "error"),
    ],
)
def test_a_side_tensor_that_is_missing(
    tensors: Tensors, section: dict[str, Any] | None, lost: str, code: str, severity: str
) -> None:
    assert codes(taken(tensors, section)) == set()
    record = taken({name: kind for name, kind in tensors.items() if name != f"{M}.{lost}"}, section)
    found = [finding for finding in record.findings if finding.code in CODES]
    assert [(finding.code, finding.severity) for finding in found] == ([(code, severity)] if code else [])


def test_scale_of_another_shape_for_some_experts_only() -> None:
    tensors: Tensors = {}
    for layer in range(3):
        for expert in range(8):
            module = f"model.layers.{layer}.mlp.experts.{expert}.up_proj"
            tensors[f"{module}.weight"] = ("fp8_e4m3", (256, 128))
            odd = layer == 1 and expert in (2, 5)
            tensors[f"{module}.weight_scale_inv"] = ("fp32", (1, 1) if odd else (2, 1))
    (finding,) = [f for f in taken(tensors, BLOCK).findings if f.code == "INV051"]
    assert "in 2 of 24 tensors (layer 1: 2,5)" in finding.message


@pytest.mark.parametrize(
    ("weight", "scale", "declared", "found"),
    [
        ((576, 7168), (5, 56), None, ("fp8_block", [128, 128])),
        ((576, 7168), (5, 1, 56, 1), None, ("fp8_block", [128, 128])),
        ((576, 7168), (576,), None, ("fp8_channel", 0)),
        ((576, 7168), (576, 1), None, ("fp8_channel", 0)),
        ((576, 7168), (), None, ("fp8_tensor", 0)),
        ((128, 64), (1, 1), (128, 128), ("fp8_block", [128, 128])),
        ((8, 576, 128), (8, 5, 1), None, ("fp8_block", [128, 128])),
        ((8, 576, 128), (8,), None, ("fp8_tensor", 0)),
        ((8, 576, 128), (8, 576), None, ("fp8_channel", 0)),
    ],
)
def test_grain_by_shape(weight: Any, scale: Any, declared: Any, found: Any) -> None:
    assert block_of_scale(weight, scale, declared) == found
    assert floating_scale(weight, declared)(scale) == ""


def test_a_scale_of_four_and_a_half_blocks_does_not_exist() -> None:
    assert floating_scale((576, 256), (128, 128))((4, 2)) == "[5, 2] (blocks of 128 x 128)"
    assert floating_scale((576, 256), None)((7, 3)) != ""
    assert normalised((5, 1, 56, 1), 2) == (5, 56)
