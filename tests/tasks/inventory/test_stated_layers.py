"""What the config states of its layers, against what is stored; and what the config's line says of it."""

from __future__ import annotations

from typing import Any

import pytest

from day0.flows.reconciliation_text import reconciliation_lines
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import MIXTRAL, SMOLLM2, mixtral_tensors, smollm2_tensors


def messages(record: InventoryRecord, code: str) -> list[str]:
    return [finding.message for finding in record.findings if finding.code == code]


def witness(record: InventoryRecord) -> str:
    return [text for _, text in reconciliation_lines(record.facts.reconciliation)][-1]


def taken(config: dict[str, Any], tensors: Any) -> InventoryRecord:
    return take_inventory(make_release(config, tensors))


@pytest.mark.parametrize(("stated", "beyond"), [(29, "29"), (20, "20-29")])
def test_layers_beyond_the_stated_number(stated: int, beyond: str) -> None:
    record = taken({**SMOLLM2, "num_hidden_layers": stated}, smollm2_tensors())
    (said,) = messages(record, "INV103")
    assert said == f"the config states {stated} layers, the tensors of model.layers hold 30: {beyond} beyond"
    assert f"{30 - stated} layer" in witness(record)
    assert "disagree" in witness(record)


def test_one_layer_too_many_is_not_agreed_to() -> None:
    record = taken({**SMOLLM2, "num_hidden_layers": 31}, smollm2_tensors())
    assert "1 layer disagrees" in witness(record)


def test_shapes_that_do_not_fit_are_not_agreed_to() -> None:
    assert ": agree" in witness(taken(SMOLLM2, smollm2_tensors()))
    record = taken({**SMOLLM2, "intermediate_size": 1024}, smollm2_tensors())
    assert record.facts.reconciliation.config.misshapen == 90  # three matrices in each of 30 layers
    assert "90 weights disagree" in witness(record)


@pytest.mark.parametrize(("stated", "said"), [
    (3, "by the config the feed-forward of layers 1-2 is dense, the tensors hold routed experts there"),
    (0, "by the config the feed-forward of layer 0 is moe, the tensors hold one dense feed-forward there"),
])  # fmt: skip
def test_dense_layers_that_hold_experts(stated: int, said: str) -> None:
    release = layout_release("moonshotai--Kimi-K2.5")
    text = {**release.config["text_config"], "first_k_dense_replace": stated}
    config = {**release.config, "text_config": text}
    record = take_inventory(layout_release("moonshotai--Kimi-K2.5", config=config))
    assert messages(record, "INV104") == [said]


def test_experts_in_one_tensor_are_counted_by_the_tensor() -> None:
    sound = take_inventory(layout_release("openai--gpt-oss-20b"))
    config = {**layout_release("openai--gpt-oss-20b").config, "num_local_experts": 16}
    record = take_inventory(layout_release("openai--gpt-oss-20b", config=config))
    assert record.facts.active_params == sound.facts.active_params


def test_a_release_without_its_embedding_is_not_complete() -> None:
    tensors = smollm2_tensors()
    assert taken(SMOLLM2, tensors).facts.readiness.state == "complete"
    del tensors["model.embed_tokens.weight"]
    record = taken(SMOLLM2, tensors)
    assert record.facts.readiness.state == "broken"
    assert any("no embedding of tokens" in reason for reason in record.facts.readiness.reasons)


def test_a_sound_mixture_has_neither() -> None:
    record = taken(MIXTRAL, mixtral_tensors())
    assert not messages(record, "INV103") + messages(record, "INV104")
