"""Every dialect of quantisation ends in the same normal form."""

from __future__ import annotations

from typing import Any

import pytest

from day0.tasks.inventory.quantization import declared_quantization


def groups(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_block", 8, [128, 128])),
        ({"quant_method": "fp8", "weight_block_size": None}, ("fp8_tensor", 8, 0)),
        ({"quant_method": "mxfp4"}, ("mxfp4", 4, 32)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("gptq", 4, 128)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, ("awq", 4, 64)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("bnb", 4, 64)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", 4, 16)),
        (groups(num_bits=4, type="int", strategy="group", group_size=32), ("int4_group", 4, 32)),
        (groups(num_bits=8, type="int", strategy="channel"), ("int8", 8, 0)),
        (groups(num_bits=8, type="float", strategy="channel"), ("fp8_channel", 8, 0)),
        (
            groups(num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
            ("fp8_block", 8, [128, 128]),
        ),
        (groups(num_bits=4, type="float", strategy="tensor_group", group_size=16), ("nvfp4", 4, 16)),
        ({"group_size": 64, "bits": 4}, ("int4_group", 4, 64)),
    ],
)
def test_normal_form(section: dict[str, Any], expected: tuple[str, int, Any]) -> None:
    declared = declared_quantization({"text_config": {"quantization_config": section}})
    assert declared.normal is not None
    assert (declared.normal.scheme, declared.normal.bits, declared.normal.group) == expected
    assert declared.pointer == "/text_config/quantization_config"
    assert declared.known


def test_two_schemes_are_mixed() -> None:
    section = groups(num_bits=4, type="int", strategy="group", group_size=32)
    section["config_groups"]["group_1"] = {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
    declared = declared_quantization({"quantization_config": section})
    assert declared.normal is not None
    assert declared.normal.scheme == "mixed"


@pytest.mark.parametrize("key", ["ignore", "modules_to_not_convert", "exclude_modules"])
def test_excluded_modules(key: str) -> None:
    section = {"quant_method": "fp8", key: ["lm_head", "re:.*gate$"]}
    declared = declared_quantization({"quantization_config": section})
    assert declared.normal is not None
    assert list(declared.normal.excluded) == ["lm_head", "re:.*gate$"]


def test_nothing_declared() -> None:
    assert declared_quantization({"hidden_size": 8}).normal is None
