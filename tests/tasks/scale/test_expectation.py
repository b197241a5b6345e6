"""Expected memory and work, by hand."""

from __future__ import annotations

from day0.tasks.inventory.take import take_inventory
from day0.tasks.scale.expectation import expect, expected_weight_bytes
from day0.tasks.scale.model_shapes import compute_cases, compute_dtype, exchange_sizes
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, smollm2_tensors

SMOLLM2_FACTS = take_inventory(make_release(SMOLLM2, smollm2_tensors())).facts


def test_state_of_the_layers_that_run() -> None:
    expected = expect(SMOLLM2_FACTS, [0, 1], "bf16", 4, 100, 8)
    assert expected.state_bytes == 2 * 4 * 108 * 768
    assert expect(SMOLLM2_FACTS, [0, 1], "fp32", 4, 100, 8).state_bytes == 2 * expected.state_bytes


def test_windows_stop_growing() -> None:
    facts = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    # One layer with a window of 128, one without: 2048 bytes a token each.
    assert expect(facts, [0, 1], "bf16", 1, 1000, 24).state_bytes == 2048 * (128 + 1024)


def test_work_of_a_prefill() -> None:
    layer, head = 3_540_096, 576 * 49_152
    expected = expect(SMOLLM2_FACTS, [0], "bf16", 2, 64, 8).prefill_flops
    assert expected == 2 * (2 * layer * 64 + 4 * 9 * 64 * 64 * 64 + 2 * head)


def test_only_active_experts_work() -> None:
    facts = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    layer = facts.layers[0]
    active = layer.params - layer.roles["expert"].elements * 28 // 32
    scores, head = 4 * 64 * 64 * 16 * 16, 2 * 2880 * 201_088
    assert expect(facts, [0], "bf16", 1, 16, 8).prefill_flops == 2 * active * 16 + scores + head


def test_weights_in_another_dtype() -> None:
    assert expected_weight_bytes(SMOLLM2_FACTS, 1000, "fp32") == 2000
    packed = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    assert expected_weight_bytes(packed, 1000, "bf16") == 0


def test_shapes_are_the_models_own_and_capped() -> None:
    cases = compute_cases(SMOLLM2_FACTS, "cpu", "bf16")
    assert [(case.operation, case.shape, case.capped) for case in cases] == [
        ("gemm", (256, 576, 1536), ""),
        ("attention", (1, 9, 256, 64), ""),
        ("topk", (8, 49_152, 50), ""),
    ]
    facts = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    gemm = compute_cases(facts, "cpu", "bf16")[0]
    assert gemm.shape == (120, 2880, 2880)
    assert gemm.capped == "capped from 256x2880x2880"


def test_exchange_of_a_mixture_of_experts() -> None:
    facts = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    exchange = exchange_sizes(facts, "cpu", "bf16", ["fp32", "bf16"])
    assert exchange.wanted == (2880, 2880 * 256 * 4)
    assert exchange.elements == (2880, 2**20)
    assert exchange.dtypes == ("bf16", "fp32")
    assert "capped from 2,949,120 elements" in exchange.notes[2**20]


def test_dtype_of_a_quantised_release_is_a_plain_one() -> None:
    facts = take_inventory(layout_release("openai--gpt-oss-20b")).facts
    assert compute_dtype(facts, None) == "bf16"
    assert compute_dtype(facts, "fp32") == "fp32"
    assert compute_dtype(facts, "fp8_e4m3") == "bf16"
