"""What stored weights in low precision ask for, from captured products and the inventory's patterns."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Kernel
from day0.tasks.coverage.low_precision import low_precision_needs
from day0.tasks.coverage.needs import group
from day0.tasks.coverage.shrink import runs_on_meta
from support.captured import call_of, meta

_aten = torch.ops.aten
_BF16 = torch.bfloat16


@dataclass(frozen=True)
class Pattern:
    pattern: str
    dtype: str
    role: str = "dense_mlp"


def _product(module: str, rows: int = 64, inner: int = 256, columns: int = 384) -> OperatorCall:
    call = call_of(_aten.mm.default, meta(rows, inner, dtype=_BF16), meta(inner, columns, dtype=_BF16))
    return call.model_copy(update={"module": module})


def _experts(module: str) -> OperatorCall:
    call = call_of(
        _aten._grouped_mm.default,
        meta(64, 256, dtype=_BF16),
        meta(4, 256, 384, dtype=_BF16),
        meta(4, dtype=torch.int32),
    )
    return call.model_copy(update={"module": module})


UP, HEAD = _product("model.layers.0.mlp.up_proj"), _product("lm_head", columns=512)
FP8 = [
    Pattern("model.layers.{l}.mlp.up_proj.weight", "fp8_e4m3"),
    Pattern("model.layers.{l}.mlp.up_proj.weight_scale_inv", "fp32", "aux"),
    Pattern("lm_head.weight", "bf16"),
]


def test_block_scaled_products_are_operators_of_their_own() -> None:
    needs = group([UP, HEAD])
    (low,) = low_precision_needs(needs, "fp8_block", [128, 128], FP8, [])
    call = low.example
    assert call.op == "aten._scaled_mm.default"
    assert list(call.dtypes) == ["fp8_e4m3", "fp8_e4m3", "fp32", "fp32"]
    assert [list(shape) for shape in call.shapes] == [[64, 256], [256, 384], [64, 2], [2, 3]]
    assert call.args[1]["tensor"]["stride"] == [1, 256]
    assert 0 < low.impact < sum(need.impact for need in needs)


def test_plain_weights_ask_for_nothing() -> None:
    assert low_precision_needs(group([UP, HEAD]), "none", 0, FP8, []) == []
    assert low_precision_needs(group([HEAD]), "fp8_block", [128, 128], FP8, []) == []


def test_experts_stored_one_by_one_are_found_in_the_fused_module() -> None:
    experts = _experts("model.layers.3.mlp.experts")
    stored = [Pattern("model.layers.{l}.mlp.experts.{e}.up_proj.weight", "fp8_e4m3", "expert")]
    (low,) = low_precision_needs(group([experts]), "fp8_channel", 0, stored, [])
    assert low.example.op == "aten._scaled_grouped_mm.default"
    assert list(low.example.dtypes) == ["fp8_e4m3", "fp8_e4m3", "fp32", "fp32", "int32"]
    shapes = [[64, 256], [4, 256, 384], [64], [4, 384], [4]]
    assert [list(shape) for shape in low.example.shapes] == shapes
    assert low.example.args[1]["tensor"]["stride"] == [256 * 384, 1, 256]
    assert runs_on_meta(low.example)  # torch itself says that the call is one
    kernel = Kernel(name="hub:x/fp8", kind="hub", required_by=["config.json#/quantization_config"])
    (low,) = low_precision_needs(group([experts]), "fp8_block", [128, 128], stored, [kernel])
    assert low.example.op == "hub:x/fp8"  # torch's grouped product takes no blocks
    assert list(low.example.shapes[2]) == [4, 2, 3]


def test_what_torch_has_no_operator_for_is_named_by_its_kernel() -> None:
    experts = _experts("model.layers.3.mlp.experts")
    stored = [Pattern("model.layers.{l}.mlp.experts.gate_up_proj_blocks", "uint8", "expert")]
    kernel = Kernel(
        name="hub:x/mxfp4", kind="hub", required_by=["config.json#/quantization_config/quant_method"]
    )
    (low,) = low_precision_needs(group([experts]), "mxfp4", 32, stored, [kernel])
    assert (low.example.op, list(low.example.dtypes)) == ("hub:x/mxfp4", ["bf16", "fp4_e2m1", "e8m0"])
    assert list(low.example.shapes[2]) == [4, 8, 384]
    (named,) = low_precision_needs(group([experts]), "mxfp4", 32, stored, [])
    assert named.example.op == "triton:mxfp4_matmul"


def test_what_stands_around_the_layers_may_be_called_otherwise() -> None:
    """Files of Kimi-K2.5 say `language_model.model`, transformers `model.language_model`."""
    experts = _experts("model.language_model.layers.3.mlp.experts")
    plain = _product("model.language_model.layers.3.mlp.shared_experts.up_proj")
    dense = _product("model.language_model.layers.0.mlp.up_proj")
    vision = _product("model.vision_tower.layers.0.mlp.up_proj")
    stored = [
        Pattern("language_model.model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", "int4", "expert"),
        Pattern("language_model.model.layers.{l}.mlp.up_proj.weight", "int4"),
    ]
    low = low_precision_needs(group([experts, plain, dense, vision]), "int4_group", 32, stored, [])
    modules = sorted(call.module for need in low for call in need.calls)
    assert modules == [
        "model.language_model.layers.0.mlp.up_proj",
        "model.language_model.layers.3.mlp.experts",
    ]
