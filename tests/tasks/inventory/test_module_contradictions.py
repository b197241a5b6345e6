"""What a declaration says of one module, or of the number format, against the tensors."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.packed_releases import CONFIG, EXPERTS, Layout, blocks, fp8, mixture, nvfp4

TYPES = {"F32": "fp32", "BF16": "bf16", "U8": "uint8", "F8_E4M3": "fp8_e4m3", "F8_E5M2": "fp8_e5m2"}
ATTENTION = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(2) for name in "qkvo"]
ROUTED = [
    f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj"
    for layer in range(2) for expert in range(EXPERTS) for name in ("gate", "up", "down")
]  # fmt: skip
Q = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.1.mlp.experts.2.down_proj"
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}


def taken(layout: Layout, section: dict[str, Any]) -> InventoryRecord:
    tensors = {name: (TYPES[dtype], shape) for name, (dtype, shape) in layout.items()}
    return take_inventory(make_release({**CONFIG, "quantization_config": section}, tensors))


def of(record: InventoryRecord, *codes: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code in codes]


def mixed(**change: Any) -> dict[str, Any]:
    """modelopt's mixed precision; a name with None is left out, `FP8` and `NVFP4` replace what is said."""
    said: dict[str, Any] = dict.fromkeys(ATTENTION, "FP8") | dict.fromkeys(ROUTED, "W4A16_NVFP4")
    layers = {name: {"quant_algo": kind} for name, kind in (said | change).items() if kind}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


def release(static: bool = True) -> Layout:
    tensor = fp8("weight_scale", lambda rows, columns: ())
    layout = mixture(nvfp4, attention=tensor)
    return layout | ({f"{name}.input_scale": ("F32", ()) for name in ATTENTION} if static else {})


def test_a_mixed_release_that_says_what_it_holds() -> None:
    record = taken(release(), mixed())
    assert of(record, "INV022", "INV023", "INV051") == []
    assert {part.scheme for part in record.facts.quantization.parts} == {"fp8_tensor", "nvfp4"}


@pytest.mark.parametrize(
    ("change", "pattern", "said"),
    [
        ({Q: "W4A16_NVFP4"}, "model.layers.{l}.self_attn.q_proj.weight",
         "nvfp4 is declared for its module, the tensors show fp8_tensor, in 1 tensor (layer 0)"),
        ({DOWN: "FP8"}, "model.layers.{l}.mlp.experts.{e}.down_proj.weight",
         "fp8_tensor is declared for its module, the tensors show nvfp4, in 1 tensor (layer 1: 2)"),
        ({Q: None}, "model.layers.{l}.self_attn.q_proj.weight", "names no scheme for it, in 1 tensor"),
        ({DOWN: None}, "model.layers.{l}.mlp.experts.{e}.down_proj.weight", "in 1 tensor (layer 1: 2)"),
    ],
)  # fmt: skip
def test_one_module_named_otherwise_or_not_at_all(change: dict[str, Any], pattern: str, said: str) -> None:
    (found,) = of(taken(release(), mixed(**change)), "INV022")
    assert found.subject.name == pattern
    assert said in found.message


def test_names_under_another_prefix_are_one_contradiction() -> None:
    section = mixed()
    layers = {f"language_model.{name}": own for name, own in section["quantized_layers"].items()}
    (found,) = of(taken(release(), {**section, "quantized_layers": layers}), "INV022")
    assert "none of which has a quantised weight" in found.message


@pytest.mark.parametrize(("fmt", "number"), [("e4m3", 7), ("e5m2", 0), ("", 0)])
def test_the_format_of_eight_bits(fmt: str, number: int) -> None:
    pack = fp8("weight_scale_inv", blocks)
    layout = {name: ("F8_E5M2" if dtype == "F8_E4M3" else dtype, shape)
              for name, (dtype, shape) in mixture(pack, attention=pack).items()}  # fmt: skip
    found = of(taken(layout, {**FP8, "fmt": fmt}), "INV022")
    assert len(found) == number
    assert all("fp8_e4m3 is declared, the tensors are fp8_e5m2" in finding.message for finding in found)


def test_a_scale_under_a_name_that_no_loader_of_fp8_reads() -> None:
    record = taken(mixture(fp8("weight_scales", blocks)), FP8)
    found = of(record, "INV023")
    assert len(found) == 3
    assert "no scale that a loader of fp8_e4m3 looks for (weight_scales stands beside it)" in found[0].message
    assert record.facts.quantization.checks.without_scale == 24


@pytest.mark.parametrize("width", [15, 8, 32])
def test_blocks_of_gpt_oss_hold_the_weights_of_one_scale(width: int) -> None:
    at = "model.layers.0.mlp.experts.down_proj"
    layout: Layout = {f"{at}_blocks": ("U8", (4, 64, 2, width)), f"{at}_scales": ("U8", (4, 64, 2))}
    (wrong,) = of(taken(layout, {"quant_method": "mxfp4"}), "INV051")
    assert f"blocks of 16 bytes, the 32 weights of a scale, not of {width}" in wrong.message


def test_experts_of_blocks_and_scales_are_as_many() -> None:
    at = "model.layers.0.mlp.experts.down_proj"
    layout: Layout = {f"{at}_blocks": ("U8", (4, 64, 2, 16)), f"{at}_scales": ("U8", (3, 64, 2))}
    (wrong,) = of(taken(layout, {"quant_method": "mxfp4"}), "INV051")
    assert "of [3, 64, 2], expected [4, 64, 2]" in wrong.message
