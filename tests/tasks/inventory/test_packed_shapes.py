"""Scales, zero points and orders of packed weights against what stands beside them; bits by shapes."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.packed_releases import (
    CONFIG,
    LOGICAL,
    Layout,
    Pack,
    awq,
    bnb,
    fp4_int8,
    gptq,
    mixture,
    mlx,
    mxfp4_packed,
    nvfp4,
    words,
)

TYPES = {
    "I32": "int32",
    "U32": "uint32",
    "BF16": "bf16",
    "F16": "fp16",
    "F32": "fp32",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "fp8_e4m3",
    "F8_E8M0": "e8m0",
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
MLX = {"bits": 4, "group_size": 32}
BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
DOWN = "model.layers.1.mlp.experts.1.down_proj"


def compressed(bits: int = 4, group: int | None = 32) -> dict[str, Any]:
    strategy = "group" if group else "channel"
    weights = {"num_bits": bits, "type": "int", "strategy": strategy, "group_size": group, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


def taken(layout: Layout, section: dict[str, Any], **more: Any) -> InventoryRecord:
    tensors = {name: (TYPES[dtype], shape) for name, (dtype, shape) in layout.items()}
    return take_inventory(make_release({**CONFIG, "quantization_config": section, **more}, tensors))


def of(record: InventoryRecord, *codes: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code in codes]


@pytest.mark.parametrize(
    ("layout", "section", "name", "kind", "expected"),
    [
        (mixture(gptq(4)), GPTQ, "scales", ("F16", (3, 64)), "[4, 64]"),
        (mixture(gptq(4)), GPTQ, "scales", ("F16", (8, 64)), "[4, 64]"),
        (mixture(gptq(4)), GPTQ, "scales", ("F16", (4, 63)), "[4, 64]"),
        (mixture(gptq(4)), GPTQ, "scales", ("F16", (64, 4)), "[4, 64]"),
        (mixture(gptq(4)), GPTQ, "qzeros", ("I32", (4, 7)), "[4, 8]"),
        (mixture(gptq(4)), GPTQ, "qzeros", ("I32", (4, 16)), "[4, 8]"),
        (mixture(gptq(4)), GPTQ, "g_idx", ("I32", (127,)), "[128]"),
        (mixture(gptq(4)), GPTQ, "g_idx", ("I32", (64,)), "[128]"),
        (mixture(gptq(3)), {**GPTQ, "bits": 3}, "scales", ("F16", (3, 64)), "[4, 64]"),
        (mixture(gptq(8)), {**GPTQ, "bits": 8}, "scales", ("F16", (2, 64)), "[4, 64]"),
        (mixture(awq), AWQ, "scales", ("F16", (3, 64)), "[4, 64]"),
        (mixture(awq), AWQ, "scales", ("F16", (4, 63)), "[4, 64]"),
        (mixture(awq), AWQ, "scales", ("F16", (4, 32)), "[4, 64]"),
        (mixture(awq), AWQ, "qzeros", ("I32", (4, 9)), "[4, 8]"),
        (mixture(words(4)), compressed(), "weight_scale", ("BF16", (64, 1)), "[64, 4]"),
        (mixture(words(4)), compressed(), "weight_scale", ("BF16", (64,)), "[64, 4]"),
        (mixture(words(4)), compressed(), "weight_scale", ("BF16", (64, 2)), "[64, 4]"),
        (mixture(words(4)), compressed(), "weight_scale", ("BF16", (64, 3)), "[64, 4]"),
        (mixture(words(4)), compressed(), "weight_scale", ("BF16", (64, 8)), "[64, 4]"),
        (mixture(words(4)), compressed(), "weight_shape", ("I32", (3,)), "[2]"),
        (mixture(mlx(4)), MLX, "scales", ("BF16", (64, 2)), "[64, 4]"),
        (mixture(mlx(4)), MLX, "biases", ("BF16", (64, 3)), "[64, 4]"),
        (mixture(bnb), BNB, "weight.absmax", ("U8", (64,)), "[128]"),
        (mixture(bnb), BNB, "weight.nested_absmax", ("F32", (3,)), "[1]"),
        (mixture(bnb), BNB, "weight.quant_map", ("F32", (256,)), "[16]"),
    ],
)
def test_one_side_tensor_of_another_shape(
    layout: Layout, section: dict[str, Any], name: str, kind: tuple[str, tuple[int, ...]], expected: str
) -> None:
    assert of(taken(layout, section), "INV022", "INV050", "INV051", "INV058") == []
    record = taken({**layout, f"{DOWN}.{name}": kind}, section)
    (wrong,) = of(record, "INV022", "INV023", "INV050", "INV051", "INV058")
    assert (wrong.code, wrong.severity) == ("INV051", "error")
    assert f"of {list(kind[1])}, expected {expected}, in 1 of 8 tensors (layer 1: 1)" in wrong.message
    checks = record.facts.quantization.checks
    assert (checks.weights, checks.with_scale) == (24, 23)
    assert record.facts.totals.logical_params == LOGICAL


@pytest.mark.parametrize(
    ("layout", "section", "said"),
    [
        (
            mixture(awq),
            {**AWQ, "group_size": 64},
            "groups of 64 are declared, 4 bits each, the shapes show 32",
        ),
        (mixture(awq), {**AWQ, "group_size": 128}, "groups of 128 are declared"),
        (mixture(gptq(4)), {**GPTQ, "group_size": 64}, "groups of 64 are declared"),
        (
            mixture(gptq(4)),
            {**GPTQ, "group_size": -1},
            "no groups are declared, the shapes show groups of 32",
        ),
        (mixture(gptq(4, order=False)), {**GPTQ, "bits": 8, "desc_act": False}, "8 bits are declared"),
        (mixture(awq), {**AWQ, "bits": 8}, "8 bits are declared, the shapes show 4"),
        (
            mixture(words(4)),
            compressed(group=128),
            "groups of 128 are declared, 4 bits each, the shapes show 32",
        ),
        (mixture(words(4)), compressed(8), "8 bits are declared, the shapes show 4"),
        (mixture(words(8)), compressed(4), "4 bits are declared, the shapes show 8"),
        (mixture(words(3)), compressed(4), "4 bits are declared, the shapes show 3"),
        (mixture(mlx(8)), MLX, "4 bits are declared, the shapes show 8"),
        (mixture(mlx(4), attention=mlx(8)), MLX, "4 bits are declared, the shapes show 8"),
        (mixture(mlx(4)), {**MLX, "bits": 8}, "8 bits are declared, the shapes show 4"),
        (mixture(bnb), {**BNB, "load_in_4bit": False, "load_in_8bit": True}, "8 bits are declared"),
        (mixture(bnb), {**BNB, "bnb_4bit_quant_type": "fp4"}, "fp4 is declared, the tensors hold nf4"),
    ],
)
def test_all_of_them_in_another_form_are_one_contradiction_a_pattern(
    layout: Layout, section: dict[str, Any], said: str
) -> None:
    record = taken(layout, section)
    found = of(record, "INV022")
    assert any(said in finding.message for finding in found)
    assert of(record, "INV023", "INV050", "INV051", "INV058") == []
    assert record.facts.totals.logical_params == LOGICAL
    assert record.facts.quantization.checks.with_scale == record.facts.quantization.checks.weights


def gemv(module: str, rows: int, columns: int) -> Layout:
    """AutoAWQ's `calculate_zeros_width`: in groups of 32 a row of zero points takes four words or eight."""
    zeros = 4 * ceil(ceil(columns // 32 / 8) / 4)
    return {
        f"{module}.qweight": ("I32", (rows, columns // 8)),
        f"{module}.qzeros": ("I32", (rows, zeros)),
        f"{module}.scales": ("F16", (rows, 8 * zeros)),
    }


def test_gemv_of_awq_pads_its_scales() -> None:
    section = {**AWQ, "version": "gemv"}
    record = taken(mixture(gemv), section)
    assert of(record, "INV022", "INV023", "INV050", "INV051") == []
    assert record.facts.totals.logical_params == LOGICAL
    row = next(row for row in record.facts.patterns if row.pattern.endswith("down_proj.qweight"))
    assert list(row.logical_shape) == [64, 128]
    wrong = {**mixture(gemv), f"{DOWN}.scales": ("F16", (63, 32))}
    assert [finding.code for finding in of(taken(wrong, section), "INV022", "INV051")] == ["INV051"]


@pytest.mark.parametrize("section", [{**GPTQ, "group_size": -1}, {**GPTQ, "group_size": 128}])
def test_one_group_for_all_inputs(section: dict[str, Any]) -> None:
    def whole(module: str, rows: int, columns: int) -> Layout:
        return gptq(4, group=columns)(module, rows, columns)

    record = taken(mixture(whole), section)
    assert of(record, "INV022", "INV023", "INV050", "INV051") == []
    two = {**mixture(whole), f"{DOWN}.scales": ("F16", (2, 64))}
    assert [finding.code for finding in of(taken(two, section), "INV022", "INV051")] == ["INV051"]


def test_one_scale_a_row_where_channels_are_declared() -> None:
    def whole(module: str, rows: int, columns: int) -> Layout:
        return words(4, group=columns)(module, rows, columns)

    record = taken(mixture(whole), compressed(group=None))
    assert of(record, "INV022", "INV023", "INV050", "INV051") == []
    two = {**mixture(whole), f"{DOWN}.weight_scale": ("BF16", (64, 2))}
    assert [f.code for f in of(taken(two, compressed(group=None)), "INV022", "INV051")] == ["INV051"]


def test_scales_that_are_missing_do_not_say_that_there_is_one_a_row() -> None:
    layout = mixture(words(4))
    kept = {name: kind for name, kind in layout.items()
            if not name.endswith("weight_scale") or ".experts.0." in name}  # fmt: skip
    record = taken(kept, compressed(group=None))
    assert of(record, "INV051") == []
    assert record.facts.quantization.checks.without_scale == 18


NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "W4A16_NVFP4",
    "exclude_modules": ["lm_head", "*self_attn*"],
}
MXFP4 = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*"],
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 32}}
    },
}


@pytest.mark.parametrize("expert", [0, 1])
@pytest.mark.parametrize(
    ("pack", "section", "scale", "shape"),
    [
        (fp4_int8, {}, "scale", (64, 1)),
        (fp4_int8, {}, "scale", (64, 2)),  # as of a byte a weight
        (nvfp4, NVFP4, "weight_scale", (64, 4)),
        (nvfp4, NVFP4, "weight_scale", (64,)),
        (mxfp4_packed, MXFP4, "weight_scale", (64, 2)),
    ],
)
def test_one_wrong_scale_does_not_make_another_format_of_fp4(
    pack: Pack, section: dict[str, Any], scale: str, shape: tuple[int, ...], expert: int
) -> None:
    layout = mixture(pack)
    name = f"model.layers.0.mlp.experts.{expert}.down_proj.{scale}"
    record = taken({**layout, name: (layout[name][0], shape)}, section)
    assert record.facts.totals.logical_params == LOGICAL
    (wrong,) = of(record, "INV023", "INV051")
    assert (wrong.code, "in 1 of 8 tensors (layer 0" in wrong.message) == ("INV051", True)


def test_one_wrong_scale_of_a_layer_s_only_tensor() -> None:
    layout = mixture(nvfp4, attention=nvfp4)
    layout["model.layers.0.self_attn.q_proj.weight_scale"] = ("F8_E4M3", (64, 1))
    record = taken(layout, {**NVFP4, "exclude_modules": ["lm_head"]})
    assert record.facts.totals.logical_params == LOGICAL
    assert [finding.code for finding in of(record, "INV023", "INV051")] == ["INV051"]
