"""The inventory's lines: one of a thing is one, numbers that add up or are explained, separators."""

from __future__ import annotations

import re
from typing import Any

import pytest

from day0.flows.inventory_text import inventory_text
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, Tensors, smollm2_tensors

ONE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 2048,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def one_layer() -> Tensors:
    found: Tensors = {"model.embed_tokens.weight": ("bf16", (2048, 8)), "lm_head.weight": ("bf16", (2048, 8))}
    for name, shape in (("q", (8, 8)), ("k", (8, 8)), ("v", (8, 8)), ("o", (8, 8))):
        found[f"model.layers.0.self_attn.{name}_proj.weight"] = ("bf16", shape)
    for name, shape in (("gate", (16, 8)), ("up", (16, 8)), ("down", (8, 16))):
        found[f"model.layers.0.mlp.{name}_proj.weight"] = ("bf16", shape)
    return found


def lines(record: InventoryRecord, width: int = 120) -> list[str]:
    return list(inventory_text(record, width))


def said(record: InventoryRecord) -> str:
    return " ".join(" ".join(lines(record, 400)).split())


def test_one_of_a_thing_is_one() -> None:
    record = take_inventory(make_release(ONE, one_layer()))
    text = " ".join(line for line in lines(record, 400) if "config: " not in line)
    assert "hidden size 8, 1 head, 1 KV head, vocabulary 2,048" in text
    assert "1 heads" not in text
    assert not re.search(r"\b1 (tensors|layers|files|shards|heads|bits)\b", text)


def test_a_tied_matrix_explains_equal_figures() -> None:
    tied = said(take_inventory(make_release(SMOLLM2, smollm2_tensors())))
    assert "without embedding: embedding and head are one matrix, counted as the head" in tied
    assert "one matrix" not in said(take_inventory(make_release(ONE, one_layer())))


def test_a_window_says_until_when() -> None:
    layers = ["sliding_attention", "full_attention"] * 15
    config = {**SMOLLM2, "layer_types": layers, "sliding_window": 128, "model_type": "gpt_oss"}
    record = take_inventory(make_release(config, smollm2_tensors()))
    assert record.facts.kv_bytes_per_token_growing == 11_520
    assert "23,040 bytes a token in bf16 until windows are full, 11,520 from then on" in said(record)


def test_ranks_say_what_is_told_apart_from_their_weights() -> None:
    record = take_inventory(layout_release("deepseek-ai--DeepSeek-R1"), layouts=["tp=1"])
    (memory,) = record.facts.distribution.memory if record.facts.distribution else ()
    assert memory.weights_bytes_max + memory.mtp_bytes_max == record.facts.totals.data_bytes
    assert "multi-token prediction apart, 15.4 GB more" in said(record)


def test_a_bare_config_says_what_its_total_leaves_out() -> None:
    record = take_inventory(make_release(ONE, one_layer()))
    implied = record.facts.implied.model_copy(update={"left_out": ["1 layer of multi-token prediction"]})
    facts = record.facts.model_copy(update={"basis": "implied", "implied": implied})
    text = said(record.model_copy(update={"facts": facts}))
    assert (
        "implied by the config, without 1 layer of multi-token prediction, which the class does not" in text
    )


@pytest.mark.parametrize(("partial", "told"), [(True, 1), (False, 0)])
def test_scales_that_may_still_come(partial: bool, told: int) -> None:
    record = take_inventory(make_release(ONE, one_layer()))
    checks = record.facts.quantization.checks.model_copy(update={"weights": 28, "with_scale": 10})
    form = record.facts.quantization.model_copy(update={"checks": checks, "scheme": "fp8_block", "bits": 8})
    ready = record.facts.readiness.model_copy(update={"partial": partial})
    facts = record.facts.model_copy(update={"quantization": form, "readiness": ready})
    text = said(record.model_copy(update={"facts": facts}))
    assert text.count("10 of 28 low-precision weights have their scales") == 1
    assert text.count("their scales, the rest may be in files that are not here") == told


def test_a_model_type_that_no_release_knows() -> None:
    text = said(take_inventory(make_release({**ONE, "model_type": "unheard-of"}, one_layer())))
    assert re.search(r"unheard-of: not known up to \d", text)


def test_what_a_finding_is_about_is_named_once() -> None:
    config = {**ONE, "tie_word_embeddings": True}
    told = [
        line for line in lines(take_inventory(make_release(config, one_layer())), 400) if "INV018" in line
    ]
    assert [line.count("lm_head.weight") for line in told] == [1]
