"""HQQ, AQLM, quanto, Marlin, EXL3: a whole release passes, one side tensor out of shape or lost does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import Tensors

CODES = {"INV022", "INV023", "INV050", "INV051", "INV058"}
ROWS, COLUMNS, EXPERTS = 128, 64, 4
Pack = Callable[[str], Tensors]


def hqq(module: str) -> Tensors:
    groups = ROWS * COLUMNS // 64
    return {
        f"{module}.W_q": ("uint8", (groups // 2, 64)),
        f"{module}.scale": ("bf16", (groups, 1)),
        f"{module}.zero": ("bf16", (groups, 1)),
        f"{module}.shape": ("int64", (2,)),
    }


def aqlm(module: str) -> Tensors:
    return {
        f"{module}.codes": ("int8", (ROWS, COLUMNS // 8, 2)),
        f"{module}.codebooks": ("fp16", (2, 256, 1, 8)),
        f"{module}.scales": ("fp16", (ROWS, 1, 1, 1)),
    }


def quanto(module: str) -> Tensors:
    return {
        f"{module}.weight._data": ("int8", (ROWS, COLUMNS)),
        f"{module}.weight._scale": ("bf16", (ROWS, 1)),
    }


def quanto_four(module: str) -> Tensors:
    groups = ROWS * COLUMNS // 128
    return {
        f"{module}.weight._data._data": ("uint8", (groups // 2, 128)),
        f"{module}.weight._scale": ("bf16", (groups, 1)),
        f"{module}.weight._shift": ("bf16", (groups, 1)),
    }


def marlin(module: str) -> Tensors:
    return {
        f"{module}.B": ("int32", (COLUMNS // 16, ROWS * 16 // 8)),
        f"{module}.s": ("fp16", (COLUMNS // 32, ROWS)),
    }


def exl3(module: str) -> Tensors:
    return {
        f"{module}.trellis": ("int16", (COLUMNS // 16, ROWS // 16, 16 * 3)),
        f"{module}.suh": ("fp16", (COLUMNS,)),
        f"{module}.svh": ("fp16", (ROWS,)),
    }


def channels(module: str) -> Tensors:
    return {f"{module}.weight": ("fp8_e4m3", (ROWS, COLUMNS)), f"{module}.weight_scale": ("fp32", (ROWS, 1))}


HQQ = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}
FLOATS = {"num_bits": 8, "type": "float", "strategy": "channel"}
CHANNELS = {
    "quant_method": "compressed-tensors",
    "config_groups": {"a": {"targets": ["Linear"], "weights": FLOATS}},
}
FORMS: dict[str, tuple[Pack, dict[str, Any]]] = {
    "hqq": (hqq, HQQ),
    "aqlm": (aqlm, {"quant_method": "aqlm"}),
    "quanto": (quanto, {"quant_method": "quanto", "weights": "int8"}),
    "quanto_four": (quanto_four, {"quant_method": "quanto", "weights": "int4"}),
    "marlin": (marlin, {"quant_method": "marlin", "bits": 4, "group_size": 32}),
    "exl3": (exl3, {"quant_method": "exl3", "bits": 3}),
    "channels": (channels, CHANNELS),
}


def experts(pack: Pack) -> Tensors:
    found: Tensors = {}
    for layer in range(2):
        for expert in range(EXPERTS):
            found |= pack(f"model.layers.{layer}.mlp.experts.{expert}.up_proj")
    return found


def found_in(tensors: Tensors, section: dict[str, Any]) -> tuple[InventoryRecord, set[str]]:
    record = take_inventory(make_release({"num_hidden_layers": 2, "quantization_config": section}, tensors))
    return record, {finding.code for finding in record.findings} & CODES


@pytest.mark.parametrize("name", FORMS)
def test_a_whole_release_is_counted_and_has_nothing_against_it(name: str) -> None:
    pack, section = FORMS[name]
    record, codes = found_in(experts(pack), section)
    assert record.facts.totals.logical_params == 2 * EXPERTS * ROWS * COLUMNS
    assert codes == set()
    assert record.facts.quantization.checks.with_scale == 2 * EXPERTS


@pytest.mark.parametrize(
    ("name", "side", "shape"),
    [
        ("hqq", "scale", (64, 1)),
        ("hqq", "zero", (7, 1)),
        ("aqlm", "scales", (ROWS // 2, 1, 1, 1)),
        ("aqlm", "codebooks", (1, 256, 1, 8)),
        ("quanto", "weight._scale", (ROWS // 2, 1)),
        ("quanto_four", "weight._shift", (3, 1)),
        ("marlin", "s", (1, ROWS)),
        ("exl3", "svh", (COLUMNS,)),
        ("channels", "weight_scale", (ROWS // 2, 1)),
        ("channels", "weight_scale", (1,)),
    ],
)
def test_one_side_tensor_out_of_shape(name: str, side: str, shape: Sequence[int]) -> None:
    pack, section = FORMS[name]
    tensors = experts(pack)
    wrong = f"model.layers.1.mlp.experts.2.up_proj.{side}"
    tensors[wrong] = (tensors[wrong][0], tuple(shape))
    record, codes = found_in(tensors, section)
    assert codes == {"INV051"}
    (finding,) = [item for item in record.findings if item.code == "INV051"]
    assert f"in 1 of {2 * EXPERTS} tensors (layer 1: 2)" in finding.message


@pytest.mark.parametrize(
    ("name", "side", "code"),
    [
        ("hqq", "scale", "INV023"),
        ("hqq", "zero", "INV050"),
        ("aqlm", "scales", "INV023"),
        ("aqlm", "codebooks", "INV050"),
        ("quanto_four", "weight._scale", "INV023"),
        ("exl3", "suh", "INV023"),
    ],
)
def test_one_side_tensor_lost(name: str, side: str, code: str) -> None:
    pack, section = FORMS[name]
    tensors = experts(pack)
    del tensors[f"model.layers.1.mlp.experts.2.up_proj.{side}"]
    assert found_in(tensors, section)[1] == {code}


def test_the_groups_that_most_tensors_show_contradict_the_declared_ones() -> None:
    half = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 128}}}
    record, codes = found_in(experts(hqq), half)
    assert codes == {"INV022"}
    assert any("groups of 128 are declared" in item.message for item in record.findings)


@pytest.mark.parametrize("strategy", ["tensor", "channel"])
def test_scales_of_another_grain_than_declared(strategy: str) -> None:
    weights = {**FLOATS, "strategy": "channel" if strategy == "tensor" else "tensor"}
    section = {**CHANNELS, "config_groups": {"a": {"targets": ["Linear"], "weights": weights}}}

    def pack(module: str) -> Tensors:
        shape = (1,) if strategy == "tensor" else (ROWS, 1)
        return {**channels(module), f"{module}.weight_scale": ("fp32", shape)}

    record, codes = found_in(experts(pack), section)
    assert codes == {"INV022"}
    assert any(f"the shapes show fp8_{strategy}" in item.message for item in record.findings)


def test_rows_of_one_scale_are_groups_as_long_as_they_are() -> None:
    tensors: Tensors = {}
    for layer in range(2):
        for name, rows, columns in (("gate_proj", 128, 64), ("up_proj", 128, 64), ("down_proj", 64, 128)):
            module = f"model.layers.{layer}.mlp.{name}"
            tensors[f"{module}.weight_packed"] = ("int32", (rows, columns // 8))
            tensors[f"{module}.weight_scale"] = ("bf16", (rows, columns // 64))
            tensors[f"{module}.weight_shape"] = ("int32", (2,))
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    section = {**CHANNELS, "config_groups": {"a": {"targets": ["Linear"], "weights": weights}}}
    record, codes = found_in(tensors, section)
    assert codes == {"INV022"}
    told = [item.message for item in record.findings if item.code == "INV022"]
    assert all("the shapes show 64" in message for message in told)


@pytest.mark.parametrize(("actorder", "code"), [("group", {"INV050"}), ("weight", set()), (None, set())])
def test_an_order_that_is_declared_is_stored(actorder: str | None, code: set[str]) -> None:
    def pack(module: str) -> Tensors:
        return {
            f"{module}.weight_packed": ("int32", (ROWS, COLUMNS // 8)),
            f"{module}.weight_scale": ("bf16", (ROWS, COLUMNS // 32)),
            f"{module}.weight_shape": ("int32", (2,)),
        }

    weights = {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True, "actorder": actorder}
    section = {**CHANNELS, "config_groups": {"a": {"targets": ["Linear"], "weights": weights}}}
    assert found_in(experts(pack), section)[1] == code
    ordered = experts(lambda module: {**pack(module), f"{module}.weight_g_idx": ("int32", (COLUMNS,))})
    assert found_in(ordered, section)[1] == set()
