"""torchao's flattened tensors under the names that its releases have and transformers writes."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import Tensors

CODES = {"INV022", "INV023", "INV050", "INV051", "INV058"}
ROWS, COLUMNS = 128, 64
Parts = dict[str, tuple[str, tuple[int, ...]]]
INTX = {"weight_dtype": {"_data": "int4", "_type": "torch.dtype"},
        "weight_granularity": {"_data": {"group_size": 32}, "_type": "PerGroup"}}  # fmt: skip
FORMS: dict[str, tuple[str, dict[str, Any], Parts, tuple[str, int, Any]]] = {
    "float8": (
        "Float8DynamicActivationFloat8WeightConfig", {"granularity": [{"_type": "PerRow"}]},
        {"qdata": ("fp8_e4m3", (ROWS, COLUMNS)), "scale": ("fp32", (ROWS, 1))}, ("fp8_channel", 8, 0),
    ),
    "int8": (
        "Int8WeightOnlyConfig", {},
        {"qdata": ("int8", (ROWS, COLUMNS)), "scale": ("fp32", (ROWS, 1))}, ("int8", 8, 0),
    ),
    "int4": (
        "Int4WeightOnlyConfig", {"group_size": 32},
        {"qdata": ("int8", (ROWS, COLUMNS // 2)), "scale": ("bf16", (COLUMNS // 32, ROWS)),
         "zero_point": ("bf16", (COLUMNS // 32, ROWS))}, ("int4_group", 4, 32),
    ),
    "tiled": (
        "Int4WeightOnlyConfig", {"group_size": 32},
        {"qdata": ("int32", (ROWS // 8, COLUMNS // 64, 32, 2)),
         "scale_and_zero": ("bf16", (COLUMNS // 32, ROWS, 2))}, ("int4_group", 4, 32),
    ),
    "intx": (
        "Int8DynamicActivationIntxWeightConfig", INTX,
        {"qdata": ("int8", (ROWS, COLUMNS)), "scale": ("fp32", (ROWS, COLUMNS // 32)),
         "zero_point": ("int8", (ROWS, COLUMNS // 32))}, ("int4_group", 4, 32),
    ),
    "nvfp4": (
        "NVFP4DynamicActivationNVFP4WeightConfig", {},
        {"qdata": ("uint8", (ROWS, COLUMNS // 2)), "scale": ("fp8_e4m3", (ROWS, COLUMNS // 16)),
         "per_tensor_scale": ("fp32", ())}, ("nvfp4", 4, 16),
    ),
}  # fmt: skip


def release_of(name: str, stem: str) -> tuple[Tensors, dict[str, Any]]:
    kind, data, parts, _ = FORMS[name]
    tensors: Tensors = {
        f"model.layers.{layer}.mlp.up_proj.{stem}_{part}": form
        for layer in range(4)
        for part, form in parts.items()
    }
    section = {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": data}}}
    return tensors, {"num_hidden_layers": 4, "hidden_size": COLUMNS, "quantization_config": section}


@pytest.mark.parametrize("stem", ["weight", "_weight"])
@pytest.mark.parametrize("name", FORMS)
def test_a_whole_release(name: str, stem: str) -> None:
    tensors, config = release_of(name, stem)
    record = take_inventory(make_release(config, tensors))
    found = record.facts.quantization
    assert record.facts.totals.logical_params == 4 * ROWS * COLUMNS
    assert (found.scheme, found.bits, found.group) == FORMS[name][3]
    assert {finding.code for finding in record.findings} & CODES == set()
    assert (found.checks.weights, found.checks.with_scale, found.checks.orphans) == (4, 4, 0)


@pytest.mark.parametrize("name", FORMS)
def test_a_scale_out_of_shape_and_a_scale_lost(name: str) -> None:
    tensors, config = release_of(name, "_weight")
    side = next(part for part in FORMS[name][2] if part.startswith("scale"))
    key = f"model.layers.2.mlp.up_proj._weight_{side}"
    dtype, shape = tensors[key]
    wrong = {**tensors, key: (dtype, (shape[0] // 2, *shape[1:]))}
    (finding,) = [f for f in take_inventory(make_release(config, wrong)).findings if f.code in CODES]
    assert (finding.code, "in 1 of 4 tensors (layer 2)" in finding.message) == ("INV051", True)
    lost = {name: form for name, form in tensors.items() if name != key}
    codes = [f.code for f in take_inventory(make_release(config, lost)).findings if f.code in CODES]
    assert codes == ["INV023"]
