"""Traps 19 to 23 of real checkpoints: what is active, prediction layers, tied embedding and head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.layouts import RELEASES, truth
from support.raw_checkpoints import (
    Layout,
    header_of,
    write_filled,
    write_index,
    write_raw,
    write_sharded,
    write_sparse,
)
from support.small_releases import MIXTRAL
from support.trap_releases import layout, of, take, taken, write_config, write_mixtral


@pytest.mark.parametrize("name", RELEASES)
def test_trap_19_active_parameters_by_three_conventions(name: str) -> None:
    active = taken(name).facts.active_params
    assert active.with_embedding_and_head == truth(name)["active_params.with_embedding_and_head"]
    if name.startswith("openai"):
        assert round(active.without_embedding / 1e9, 2) == 3.61  # "3.6B"
        assert active.with_embedding_and_head - active.without_embedding == 201088 * 2880
    else:
        vocabulary = 129280 if name.startswith("deepseek") else 163840
        matrix = vocabulary * 7168
        assert active.with_embedding_and_head - active.without_embedding == matrix
        assert active.without_embedding - active.without_embedding_and_head == matrix


def test_trap_20_totals_follow_headers_and_not_a_formula_on_the_config() -> None:
    record = taken("moonshotai--Kimi-K2.5")
    facts = record.facts
    assert facts.totals.logical_params == 1_026_879_376_368
    assert facts.quantization.scheme == "int4_group"
    assert facts.totals.routed_expert_params == 1_014_686_023_680


def test_trap_20_a_config_without_experts_hides_none(tmp_path: Path) -> None:
    config = {key: value for key, value in MIXTRAL.items() if "expert" not in key}
    write_config(tmp_path, config)
    write_sharded(tmp_path, layout(), 2)
    facts = take(tmp_path).facts
    assert facts.totals.routed_expert_params == 2 * 4 * 3 * 32 * 64


def _with_prediction(number: int, *, embedding: bool) -> dict[str, tuple[str, Sequence[int]]]:
    """The model with a prediction layer of DeepSeek's kind at the index after the last layer."""
    tensors = layout()
    root = f"model.layers.{number}"
    for name, kind in layout().items():
        if ".layers.1." in name:
            tensors[name.replace("model.layers.1", root)] = kind
    tensors |= {
        f"{root}.eh_proj.weight": ("BF16", (32, 64)),
        f"{root}.enorm.weight": ("BF16", (32,)),
        f"{root}.hnorm.weight": ("BF16", (32,)),
        f"{root}.shared_head.norm.weight": ("BF16", (32,)),
    }
    if embedding:
        tensors[f"{root}.embed_tokens.weight"] = ("BF16", (100, 32))
        tensors[f"{root}.shared_head.head.weight"] = ("BF16", (100, 32))
    return tensors


def test_trap_21_prediction_layer_is_its_own_class_and_its_copies_are_noted(tmp_path: Path) -> None:
    write_config(tmp_path, {**MIXTRAL, "num_nextn_predict_layers": 1})
    write_sharded(tmp_path, _with_prediction(2, embedding=True), 2)
    record = take(tmp_path)
    mtp = record.facts.totals.mtp_params
    assert mtp > 2 * 100 * 32
    assert record.facts.totals.main_params + mtp == record.facts.totals.logical_params
    assert len(record.facts.layers) == 2
    copies = {finding.subject.name: finding.message for finding in of(record, "INV047")}
    assert set(copies) == {
        "model.layers.2.embed_tokens.weight",
        "model.layers.2.shared_head.head.weight",
    }
    assert "other bytes" in copies["model.layers.2.embed_tokens.weight"]
    assert of(record, "INV025") == []


@pytest.mark.parametrize(
    ("declared", "stored", "said"),
    [
        ({}, True, "the config declares none"),
        ({"num_nextn_predict_layers": 1, "num_mtp_modules": 7}, False, "num_mtp_modules 7, and no tensor"),
        ({"num_nextn_predict_layers": 3}, True, "declares num_nextn_predict_layers 3, and 1 layer"),
        ({"num_nextn_predict_layers": 1}, True, ""),
        ({}, False, ""),
    ],
)
def test_trap_22_config_and_prediction_layers_disagree(
    tmp_path: Path, declared: dict[str, int], stored: bool, said: str
) -> None:
    write_config(tmp_path, {**MIXTRAL, **declared})
    tensors = _with_prediction(2, embedding=False) if stored else layout()
    write_sharded(tmp_path, tensors, 2)
    found = of(take(tmp_path), "INV025")
    assert len(found) == bool(said)
    assert all(said in finding.message for finding in found)


@pytest.mark.parametrize(
    ("config", "head", "codes", "compared"),
    [
        (True, "none", {}, ""),
        (True, "copy", {"INV049": "info"}, "identical"),
        (True, "other", {"INV018": "error"}, "different"),
        (True, "empty", {"INV048": "warning"}, ""),
        (False, "none", {"INV019": "error"}, ""),
        (False, "other", {}, "different"),
        (False, "copy", {"INV049": "info"}, "identical"),
        (False, "empty", {"INV048": "warning", "INV019": "error"}, ""),
    ],
)
def test_trap_23_tied_by_config_and_by_tensors(
    tmp_path: Path, config: bool, head: str, codes: dict[str, str], compared: str
) -> None:
    write_config(tmp_path, {**MIXTRAL, "tie_word_embeddings": config})
    tensors = layout()
    embedding = tensors.pop("model.embed_tokens.weight")
    tensors.pop("lm_head.weight")
    write_filled(tmp_path / "model-00001-of-00002.safetensors", tensors)
    held: Layout = {"model.embed_tokens.weight": embedding}
    if head == "empty":
        held = {**held, "lm_head.weight": ("BF16", (0, 32))}
    elif head != "none":
        held = {**held, "lm_head.weight": embedding}
    last = write_filled(tmp_path / "model-00002-of-00002.safetensors", held)
    if head == "copy":
        data, size = last.read_bytes(), 100 * 32 * 2
        last.write_bytes(data[:-size] + data[-2 * size : -size])
    owner = dict.fromkeys(tensors, "model-00001-of-00002.safetensors") | dict.fromkeys(held, last.name)
    write_index(tmp_path, owner, 0)
    record = take(tmp_path)
    found = {finding.code: finding.severity for finding in record.findings}
    assert {code: found[code] for code in found if code in ("INV018", "INV019", "INV048", "INV049")} == codes
    assert record.facts.tied_embeddings.compared == compared
    assert record.facts.tied_embeddings.tensors is (head in ("none", "empty"))


def test_trap_23_a_large_or_distant_head_is_not_compared(tmp_path: Path) -> None:
    config = {**MIXTRAL, "tie_word_embeddings": True, "vocab_size": 2_000_000}
    write_config(tmp_path, config)
    tensors = layout() | {
        "model.embed_tokens.weight": ("BF16", (2_000_000, 32)),
        "lm_head.weight": ("BF16", (2_000_000, 32)),
    }
    write_sparse(tmp_path / "model.safetensors", tensors)
    record = take(tmp_path)
    (finding,) = of(record, "INV018")
    assert (finding.severity, record.facts.tied_embeddings.compared) == ("warning", "unverified")


def test_trap_23_a_head_of_an_empty_dtype_breaks_its_file_alone(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    header, length = header_of({"model.norm.weight": ("BF16", (32,))})
    broken = header[:-1] + b',"lm_head.weight":{"dtype":"","shape":[],"data_offsets":[64,64]}}'
    write_raw(paths[0], broken, b"\1" * length)
    record = take(tmp_path)
    (finding,) = of(record, "INV009")
    assert "lm_head.weight" in finding.message
    assert "unknown dtype" in finding.message
