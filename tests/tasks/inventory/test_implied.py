"""What a config implies, against what models of that type really store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import FIXTURES, RELEASES, layout_release, make_release, truth
from support.small_releases import MIXTRAL, mixtral_tensors

Folder = Callable[[str], Path]


def codes(record: InventoryRecord) -> set[str]:
    return {finding.code for finding in record.findings if finding.code in ("INV040", "INV041", "INV042")}


def test_a_whole_model_deviates_in_nothing_and_a_removed_tensor_in_that_one() -> None:
    tensors = mixtral_tensors()
    record = take_inventory(make_release(MIXTRAL, tensors), expected=True)
    found = record.facts.reconciliation
    assert (found.consistent, found.faulty, found.config.status) == (41, 0, "checked")
    assert record.facts.implied.totals is not None
    assert record.facts.implied.totals.logical_params == record.facts.totals.logical_params
    assert record.facts.implied.totals.data_bytes == record.facts.totals.data_bytes
    assert codes(record) == set()

    del tensors["model.layers.1.block_sparse_moe.experts.2.w3.weight"]
    tensors["model.layers.0.self_attn.q_proj.weight"] = ("bf16", (32, 16))
    tensors["model.layers.0.self_attn.sinks"] = ("bf16", (4,))
    record = take_inventory(make_release(MIXTRAL, tensors), expected=True)
    rows = {row.verdict: row for row in record.facts.reconciliation.exceptions}
    missing = rows["expected_missing"]
    assert (missing.example, missing.tensors) == ("model.layers.1.block_sparse_moe.experts.2.w3.weight", 1)
    assert rows["unexpected"].example == "model.layers.0.self_attn.sinks"
    assert rows["misshapen"].example == "model.layers.0.self_attn.q_proj.weight"
    assert codes(record) == {"INV040", "INV041", "INV042"}
    (shape,) = [finding for finding in record.findings if finding.code == "INV042"]
    assert "[32, 16] is stored, [32, 32] is implied" in shape.message


def test_not_asked_and_not_known_are_told_apart() -> None:
    record = take_inventory(make_release(MIXTRAL, mixtral_tensors()))
    assert (record.facts.implied.status, record.facts.implied.reason) == ("unverified", "not asked for")
    config = {**MIXTRAL, "model_type": "mixtral_of_tomorrow"}
    record = take_inventory(make_release(config, mixtral_tensors()), expected=True)
    assert "mixtral_of_tomorrow" in record.facts.implied.reason
    (finding,) = [finding for finding in record.findings if finding.code == "INV043"]
    assert finding.severity == "info"
    assert record.facts.reconciliation.config.status != "checked"


def test_a_bare_config_answers_what_a_person_plans_with(tmp_path: Path) -> None:
    source = FIXTURES / "configs" / "deepseek-ai--DeepSeek-R1" / "config.json"
    path = tmp_path / "config.json"
    path.write_bytes(source.read_bytes())
    facts = take_inventory(open_release(str(path))).facts
    assert facts.readiness.state == "config_only"
    known = facts.implied
    assert known.status == "computed"
    assert known.totals is not None
    assert known.active_params is not None
    assert known.totals.logical_params == 671_026_419_200
    assert known.totals.logical_params == truth("deepseek-ai--DeepSeek-R1")["totals.main_params"]
    assert known.active_params.with_embedding_and_head == 37_552_297_472
    assert known.plain_bytes == 2 * 671_026_419_200 + 2 * 58 * 256  # the routers' biases are in fp32
    assert known.totals.data_bytes == 673_150_611_808  # what the release stores but for the prediction layer
    assert known.left_out == ["1 layer of multi-token prediction"]
    experts = next(row for row in known.patterns if row.pattern.endswith("experts.{e}.up_proj.weight"))
    assert (experts.layers, list(experts.others), experts.dtype) == ("3-60", ["0-255"], "fp8_e4m3")
    assert {"aten.mm.default", "aten.embedding.default"} <= {item.op for item in known.operators}
    assert [layer.feed_forward for layer in facts.layers[:4]] == ["dense", "dense", "dense", "moe"]
    assert facts.kv_bytes_per_token == 61 * (512 + 64) * 2


def independent_r1(config: dict[str, Any]) -> int:
    """Parameters of DeepSeek-V3 by the formulas of its paper, section 2.1 and 4.2."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    attention = hidden * query + query + query * heads * (nope + rope)
    attention += hidden * (latent + rope) + latent + latent * heads * (nope + value) + heads * value * hidden
    expert = 3 * hidden * config["moe_intermediate_size"]
    dense = 3 * hidden * config["intermediate_size"]
    experts = config["n_routed_experts"]
    moe = (experts + config["n_shared_experts"]) * expert + experts * hidden + experts
    first, layers = config["first_k_dense_replace"], config["num_hidden_layers"]
    body = layers * (attention + 2 * hidden) + first * dense + (layers - first) * moe
    return int(body + 2 * config["vocab_size"] * hidden + hidden)


def test_the_formulas_of_the_paper_give_the_same() -> None:
    config = json.loads((FIXTURES / "configs" / "deepseek-ai--DeepSeek-R1" / "config.json").read_text())
    assert independent_r1(config) == 671_026_419_200


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASES)
def test_real_releases_hold_exactly_what_their_config_implies(name: str) -> None:
    record = take_inventory(layout_release(name), expected=True)
    found = record.facts.reconciliation
    assert (found.config.missing, found.config.unexpected, found.config.misshapen) == (0, 0, 0)
    assert found.config.ignored == (788 if "R1" in name else 0)  # weights of the prediction layer
    known = record.facts.implied.totals
    assert known is not None
    assert known.logical_params == record.facts.totals.main_params
    assert known.routed_expert_params == record.facts.totals.routed_expert_params
    assert known.vision_params == record.facts.totals.vision_params
    stored = [row for row in record.facts.patterns if row.part != "mtp" and row.role != "buffer"]
    shapes = sum(row.bytes for row in stored if row.pattern.endswith("_shape"))
    assert known.data_bytes == sum(row.bytes for row in stored) - shapes


@pytest.mark.slow
@pytest.mark.parametrize(
    "model_type", ["llama", "qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "gemma3_text", "qwen3_next"]
)
def test_saved_models_deviate_in_nothing(model_type: str, tiny_checkpoint: Folder) -> None:
    record = take_inventory(open_release(str(tiny_checkpoint(model_type))), expected=True)
    found = record.facts.reconciliation
    assert (found.faulty, list(found.exceptions), found.config.status) == (0, [], "checked")


@pytest.mark.slow
def test_a_vision_language_model_deviates_in_nothing(tmp_path: Path) -> None:
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = CLIPVisionConfig(**sizes, image_size=32, patch_size=8, projection_dim=32)
    text = LlamaConfig(**sizes, vocab_size=64, tie_word_embeddings=True)
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text))
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    record = take_inventory(open_release(str(tmp_path)), expected=True)
    found = record.facts.reconciliation
    assert (found.faulty, list(found.exceptions), found.config.status) == (0, [], "checked")


def test_a_bare_config_of_an_unknown_model_is_undecided(tmp_path: Path) -> None:
    config = {"model_type": "zzz", "architectures": ["ZzzForCausalLM"], "hidden_size": 64,
              "num_hidden_layers": 2, "vocab_size": 100, "num_attention_heads": 4}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    record = take_inventory(open_release(str(tmp_path / "config.json")))
    assert record.facts.basis == "none"
    assert record.verdict == "unverified"
    (told,) = [finding.message for finding in record.findings if finding.code == "INV105"]
    assert "no model could be built of zzz" in told
