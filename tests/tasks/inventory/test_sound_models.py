"""Models as transformers writes them, all sound: encoders, encoder-decoders, bare and recurrent ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory

BASE: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 32,
}  # fmt: skip
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
KV = 2 * 4 * 8 * 2  # key and value of four heads of eight, two bytes each
SPEECH = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_mel_bins": 16,
    "max_source_positions": 20, "max_target_positions": 20, "decoder_start_token_id": 1,
    "suppress_tokens": None, "begin_suppress_tokens": None, **IDS,
}  # fmt: skip
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
MIXTURE = {**BASE, **IDS, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}


def saved(folder: Path, name: str, config: str, stated: dict[str, Any]) -> InventoryRecord:
    import torch
    import transformers

    made = getattr(transformers, config)(**stated)
    getattr(transformers, name)(made).to(torch.bfloat16).save_pretrained(folder)
    return take_inventory(open_release(str(folder)), expected=False)


def codes(record: InventoryRecord) -> Sequence[str]:
    """What is said of the model; it has no tokenizer and no licence, and was cast to bf16."""
    return [f.code for f in record.findings if f.code not in ("INV060", "INV071", "INV078")]


@pytest.mark.parametrize(
    ("name", "config", "more"),
    [
        ("BertForMaskedLM", "BertConfig", {}),
        ("BertModel", "BertConfig", {}),
        ("RobertaForMaskedLM", "RobertaConfig", {}),
        ("DebertaV2ForMaskedLM", "DebertaV2Config", {}),
        ("ElectraForMaskedLM", "ElectraConfig", {"embedding_size": 16}),
        ("ModernBertForMaskedLM", "ModernBertConfig", {**IDS, "cls_token_id": 1, "sep_token_id": 2}),
        ("ViTForImageClassification", "ViTConfig", {"image_size": 16, "patch_size": 8}),
    ],
)
def test_an_encoder_has_neither_a_wrong_head_nor_a_cache(
    tmp_path: Path, name: str, config: str, more: dict[str, Any]
) -> None:
    record = saved(tmp_path, name, config, {**BASE, **more})
    assert codes(record) == []
    assert record.facts.kv_bytes_per_token == 0


def test_a_bare_model_needs_no_head(tmp_path: Path) -> None:
    record = saved(tmp_path, "LlamaModel", "LlamaConfig", {**BASE, **IDS})
    assert codes(record) == []
    assert record.facts.tied_embeddings.tensors is None
    assert record.facts.kv_bytes_per_token == 2 * KV


@pytest.mark.parametrize(("encoder", "decoder"), [(2, 4), (4, 2)])
def test_only_the_decoder_keeps_keys_and_values(tmp_path: Path, encoder: int, decoder: int) -> None:
    stated = {**T5, "num_layers": encoder, "num_decoder_layers": decoder}
    record = saved(tmp_path, "T5ForConditionalGeneration", "T5Config", stated)
    assert codes(record) == []
    assert record.facts.kv_bytes_per_token == decoder * KV
    assert {layer.kind for layer in record.facts.layers} == {"full"}
    assert "encoder token" in record.sources["/kv_bytes_per_token"]


def test_cross_attention_of_fixed_length_is_state_of_the_sequence(tmp_path: Path) -> None:
    record = saved(tmp_path, "WhisperForConditionalGeneration", "WhisperConfig", SPEECH)
    assert codes(record) == []
    assert (record.facts.kv_bytes_per_token, record.facts.state_bytes_per_sequence) == (3 * KV, 3 * 20 * KV)


def test_tables_of_lightning_attention_are_no_parameters(tmp_path: Path) -> None:
    record = saved(tmp_path, "MiniMaxForCausalLM", "MiniMaxConfig", {**MIXTURE, "head_dim": 8})
    assert codes(record) == []
    assert record.facts.totals.aux_elements == 4 * (256 * 256 + 256 + 256 + 1) * 1
    assert record.facts.state_bytes_per_sequence == 4 * 8 * 8 * 2


def test_mamba_under_the_word_of_linear_attention(tmp_path: Path) -> None:
    stated = {**MIXTURE, **MAMBA2, "shared_intermediate_size": 16, "layer_types": ["mamba", "attention"]}
    record = saved(tmp_path, "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", stated)
    assert codes(record) == []
    assert [layer.kind for layer in record.facts.layers] == ["state_space", "full"]
    assert record.facts.state_bytes_per_sequence == (80 * 4 + 64 * 8) * 2


def test_rwkv_keeps_a_state_and_no_cache(tmp_path: Path) -> None:
    stated = {**IDS, "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 32}
    record = saved(tmp_path, "RwkvForCausalLM", "RwkvConfig", stated)
    assert codes(record) == []
    assert [layer.kind for layer in record.facts.layers] == ["linear"] * 2
    assert record.facts.state_bytes_per_sequence == 2 * 5 * 32 * 2
