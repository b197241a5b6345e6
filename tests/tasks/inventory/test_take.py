"""The inventory of whole releases: the three real ones to the last parameter, small ones by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from day0.tasks.verdict import Verdict
from support.layouts import RELEASES, layout_release, make_release, truth
from support.small_releases import (
    MIXTRAL,
    SMOLLM2,
    gguf_tensors,
    mixtral_tensors,
    smollm2_tensors,
)

# Totals of files, which headers in memory do not have.
_OF_FILES = ("header_bytes_total", "safetensors_file_bytes")


@pytest.fixture(scope="module")
def real() -> dict[str, InventoryRecord]:
    return {name: take_inventory(layout_release(name)) for name in RELEASES}


@pytest.mark.parametrize("name", RELEASES)
def test_totals_of_real_releases_are_exact(real: dict[str, InventoryRecord], name: str) -> None:
    expected = {key: value for key, value in truth(name).items() if key not in _OF_FILES}
    facts = real[name].facts.model_dump()

    def look_up(path: str) -> Any:
        value: Any = facts
        for part in path.split("."):
            value = value[part]
        return value

    assert {path: look_up(path) for path in expected} == expected


def test_real_releases_raise_no_false_alarm(real: dict[str, InventoryRecord]) -> None:
    assert {name: record.verdict for name, record in real.items()} == dict.fromkeys(RELEASES, Verdict.PASS)
    codes = {finding.code for record in real.values() for finding in record.findings}
    assert codes == {"INV016", "INV047", "INV072", "INV073"}


def test_state_of_real_releases(real: dict[str, InventoryRecord]) -> None:
    deepseek, kimi, gpt_oss = (real[name].facts for name in RELEASES)
    # 61 layers keep 512 latent and 64 rotary elements of two bytes each.
    assert deepseek.kv_bytes_per_token == kimi.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    # 24 layers of 8 KV heads x 64 x key and value x 2 bytes, half of them within a window of 128 tokens.
    assert gpt_oss.kv_bytes_per_token == 24 * 8 * 64 * 2 * 2 == 49_152
    assert gpt_oss.kv_bytes_per_token_growing == 24_576
    assert gpt_oss.kv_window_bytes == {128: 24_576}


def test_kinds_of_real_releases(real: dict[str, InventoryRecord]) -> None:
    deepseek, kimi, gpt_oss = (real[name].facts.layers for name in RELEASES)
    assert [layer.feed_forward for layer in deepseek] == ["dense"] * 3 + ["moe"] * 58
    assert {layer.kind for layer in deepseek} == {layer.kind for layer in kimi} == {"mla"}
    assert [layer.kind for layer in gpt_oss] == ["sliding", "full"] * 12
    assert kimi[60].name == "language_model.model.layers.60"


def test_quantization_of_real_releases(real: dict[str, InventoryRecord]) -> None:
    forms = [real[name].facts.quantization for name in RELEASES]
    assert [(form.scheme, form.bits, form.group) for form in forms] == [
        ("fp8_block", 8, [128, 128]),
        ("int4_group", 4, 32),
        ("mxfp4", 4, 32),
    ]
    assert forms[1].excluded[0] == "lm_head"
    assert real[RELEASES[1]].sources["/quantization"] == "config.json#/text_config/quantization_config"


def test_smollm2_by_hand() -> None:
    facts = take_inventory(make_release(SMOLLM2, smollm2_tensors())).facts
    layer = 2 * 576 * 576 + 2 * 192 * 576 + 3 * 576 * 1536 + 2 * 576
    assert facts.totals.logical_params == 49_152 * 576 + 30 * layer + 576 == 134_515_008
    assert facts.totals.data_bytes == 269_030_016
    assert facts.totals.tensors == 272
    assert facts.layers[7].params == layer
    assert facts.layers[7].name == "model.layers.7"
    assert facts.layers[7].roles["attention"].elements == 2 * 576 * 576 + 2 * 192 * 576
    assert facts.kv_bytes_per_token == 30 * 2 * 3 * 64 * 2 == 23_040
    assert facts.tied_embeddings.config is True
    assert facts.tied_embeddings.tensors is True
    # One matrix is embedding and head: it counts once, and stays in as the head.
    assert facts.active_params.with_embedding_and_head == 134_515_008
    assert facts.active_params.without_embedding == 134_515_008
    assert facts.active_params.without_embedding_and_head == 134_515_008 - 49_152 * 576


def test_mixtral_by_hand() -> None:
    facts = take_inventory(make_release(MIXTRAL, mixtral_tensors())).facts
    expert = 3 * 32 * 64
    body = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 2 * 32 + 4 * 32) + 32
    assert facts.totals.routed_expert_params == 2 * 4 * expert
    assert facts.totals.logical_params == 2 * 100 * 32 + body + 2 * 4 * expert
    assert facts.active_params.without_embedding_and_head == body + 2 * 2 * expert
    assert facts.active_params.without_embedding == body + 2 * 2 * expert + 3_200
    assert facts.roles["router"].params == 2 * 4 * 32
    assert {layer.feed_forward for layer in facts.layers} == {"moe"}
    row = next(row for row in facts.patterns if ".w1." in row.pattern)
    assert row.pattern == "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight"
    assert (row.layers, list(row.others), row.tensors) == ("0-1", ["0-3"], 8)


def test_bare_config_gives_structure_and_memory() -> None:
    record = take_inventory(make_release(SMOLLM2, {}))
    facts = record.facts
    assert facts.format == "none"
    stored = take_inventory(make_release(SMOLLM2, smollm2_tensors())).facts
    assert (facts.basis, stored.basis) == ("implied", "headers")
    assert facts.totals == stored.totals.model_copy(update={"shards": 0})
    assert (facts.active_params, facts.layers) == (stored.active_params, stored.layers)
    assert record.sources["/totals"].startswith("computed:implied by the config")
    assert facts.kv_bytes_per_token == 23_040
    assert facts.architecture.hidden_size == 576


def test_unknown_architecture_gets_the_full_table() -> None:
    tensors = {
        "trunk.stem": ("bf16", (8, 8)),
        **{f"trunk.layers.{i}.warp.weight": ("bf16", (8, 8)) for i in range(3)},
    }
    record = take_inventory(make_release({"model_type": "nobody_knows"}, tensors))
    assert record.facts.totals.logical_params == 4 * 64
    assert list(record.facts.unknown_tensors) == ["trunk.stem", "trunk.layers.{l}.warp.weight"]
    assert [layer.name for layer in record.facts.layers] == [f"trunk.layers.{i}" for i in range(3)]
    codes = {finding.code for finding in record.findings}
    assert "INV015" in codes
    assert "INV024" in codes
    assert record.verdict is Verdict.UNVERIFIED


def test_gguf_counts_weights_not_blocks() -> None:
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    record = take_inventory(make_release(config, gguf_tensors(2), format="gguf"))
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64
    assert record.facts.totals.logical_params == 128 * 64 + 2 * layer + 64
    assert record.facts.layers[1].name == "model.layers.1"
    assert record.facts.layers[1].bytes == (layer - 128) * 20 // 32 + 128 * 4
    assert record.facts.quantization.scheme == "mixed"
    assert record.verdict is Verdict.PASS


def test_every_number_has_a_source() -> None:
    record = take_inventory(make_release(MIXTRAL, mixtral_tensors()))

    def numbers(value: Any, pointer: str = "") -> list[str]:
        if isinstance(value, dict):
            return [place for key, part in value.items() for place in numbers(part, f"{pointer}/{key}")]
        if isinstance(value, list | tuple):
            return [place for i, part in enumerate(value) for place in numbers(part, f"{pointer}/{i}")]
        return [pointer] if isinstance(value, int | float) and value else []

    prefixes = tuple(record.sources)
    lacking = [place for place in numbers(record.facts.model_dump()) if not place.startswith(prefixes)]
    assert lacking == []


def test_facts_are_identical_for_identical_inputs() -> None:
    first = take_inventory(make_release(MIXTRAL, mixtral_tensors()))
    reordered = dict(reversed(mixtral_tensors().items()))
    assert take_inventory(make_release(MIXTRAL, mixtral_tensors())).facts_digest == first.facts_digest
    assert take_inventory(make_release(MIXTRAL, reordered)).facts.totals == first.facts.totals


def test_neither_torch_nor_transformers_is_loaded() -> None:
    code = (
        "import sys; import day0.tasks.inventory.take, day0.tasks.inventory.table, day0.tasks.inventory.task;"
        "print(sorted({'torch', 'transformers', 'prefect', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
