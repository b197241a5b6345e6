from __future__ import annotations

import pytest

from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.models.capture_model import capture_model
from support.tiny_models import TINY


def captured(model_type: str, mode: str = "graph", experts: str = "", **changes: object) -> Capture:
    config = {"model_type": model_type, **TINY[model_type], **changes}
    return capture_model(config, CaptureRequest(mode=mode, experts=experts))


def test_composites_stay_whole_and_every_layer_is_counted() -> None:
    capture = captured("llama", num_hidden_layers=5)
    assert [anomaly.code for anomaly in capture.anomalies] == ["graphs_of_prefill"]  # and no hole in it
    linear = [call for call in capture.calls if call.op == "aten.linear.default"]
    assert sum(call.count for call in linear) == 5 * 7 + 1  # seven in a layer, and the head
    (down,) = [call for call in linear if list(call.shapes[1]) == [32, 48]]
    assert (down.count, down.tokens) == (5, 64)
    assert list(down.modules) == [f"model.layers.{layer}.mlp.down_proj" for layer in range(5)]
    assert {call.op for call in capture.calls} >= {
        "aten.scaled_dot_product_attention.default",
        "aten.embedding.default",
    }


@pytest.mark.slow
def test_it_is_another_set_than_a_forward_dispatches() -> None:
    graph, eager = ({call.op for call in captured("qwen3_moe", mode).calls} for mode in ("graph", "eager"))
    assert "aten.linear.default" in graph - eager
    assert "aten.mm.default" in eager - graph
    assert "aten._grouped_mm.default" in graph & eager


@pytest.mark.slow
def test_a_layer_that_cannot_be_exported_is_told_and_the_rest_is_there() -> None:
    # Expert by expert the loop depends on which experts were hit, which a graph cannot know.
    capture = captured("qwen3_moe", experts="eager")
    assert [(anomaly.code, anomaly.subject) for anomaly in capture.undecided] == [
        ("graph_not_captured", "model.layers.1")
    ]
    modules = {call.module.split(".mlp")[0] for call in capture.calls}
    assert "model.layers.0" in modules
    assert "lm_head" in modules
