from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from day0.adapters.base.operator_capture import CaptureRequest
from day0.adapters.models.capture_model import capture_model
from day0.adapters.models.config_remarks import remarks_of

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "dtype": "float32",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"time_step_limit": [0.0, inf], "sliding_window": -1, "num_local_experts": 0}, {}),
        ({"num_hidden_layers": -3}, {"config.json#/num_hidden_layers": "no_blocks"}),
        ({"text_config": {"n_layer": 0}}, {"config.json#/text_config/n_layer": "no_blocks"}),
        ({"num_hidden_layers": False, "num_layers": "0"}, {}),
        ({"rms_norm_eps": nan, "more": [{"deep": nan}]}, {"config.json#/rms_norm_eps": "not_a_number"}),
        ({"quantization_config": {"quant_method": "fp8"}}, {}),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, {}),
        ({"quantization_config": ["fp8"]}, {}),
        (
            {"text_config": {"quantization_config": {"quant_method": "zzz"}}},
            {"config.json#/text_config/quantization_config": "unknown_quantization"},
        ),
    ],
)
def test_what_no_model_can_mean_is_remarked(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert {one.subject: one.code for one in remarks_of({**LLAMA, **changes})} == expected


def test_all_places_are_told() -> None:
    (remark,) = remarks_of({"eps": nan, "more": [1.0, {"deep": nan}], "rest": [nan] * 9})
    assert remark.message.endswith("eps, more/1/deep, rest/0, rest/1, rest/2 and 6 more")


def test_a_capture_without_blocks_leaves_a_hole_and_the_rest_is_listed() -> None:
    strange = {"rms_norm_eps": nan, "quantization_config": {"quant_method": "zzz"}}
    capture = capture_model({**LLAMA, "num_hidden_layers": 0, **strange}, CaptureRequest())
    codes = [one.code for one in capture.anomalies]
    assert codes == ["no_blocks", "not_a_number", "unknown_quantization"]
    assert [one.code for one in capture.undecided] == ["no_blocks"]
    assert capture.calls
