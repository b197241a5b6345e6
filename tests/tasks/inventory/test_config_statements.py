"""Statements of a config that no model can have: a finding each, and none for what published configs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.adapters.checkpoints.writer import write_checkpoint
from day0.tasks.finding import Finding
from day0.tasks.inventory.take import take_inventory
from day0.tasks.verdict import Verdict
from support.layouts import FIXTURES, make_release
from support.small_releases import MIXTRAL, SMOLLM2, gguf_tensors, mixtral_tensors, smollm2_tensors

STATEMENTS = ("INV033", "INV034")


def statements(config: dict[str, Any], *, weights: bool = True) -> list[Finding]:
    release = make_release(config, smollm2_tensors() if weights else {})
    return [
        finding for finding in take_inventory(release, expected=False).findings if finding.code in STATEMENTS
    ]


@pytest.mark.parametrize(
    ("key", "value", "said", "severity"),
    [
        ("num_hidden_layers", -3, "num_hidden_layers -3, which is no whole number from 1 on", "error"),
        ("num_hidden_layers", "four", "num_hidden_layers 'four'", "error"),
        ("num_hidden_layers", 0, "the tensors hold 30 layers", "error"),
        ("num_hidden_layers", True, "num_hidden_layers True", "error"),
        ("num_hidden_layers", 2.5, "num_hidden_layers 2.5", "error"),
        ("num_attention_heads", 0, "the tensors hold weights of the role attention", "error"),
        ("hidden_size", {"a": 1}, "hidden_size {'a': 1}", "error"),
        ("num_experts_per_tok", -1, "which is no whole number from 0 on", "warning"),
        ("max_position_embeddings", 10**400, "a number of 401 digits", "warning"),
        ("max_position_embeddings", -(10**400), "minus a number of 401 digits", "warning"),
        ("rope_theta", {"__float__": "NaN"}, "rope_theta NaN, which is no number", "warning"),
        ("rope_theta", {"__float__": "Infinity"}, "rope_theta Infinity", "warning"),
        ("rope_theta", 0, "rope_theta 0, which is no finite number above 0", "warning"),
        ("rope_theta", "big", "rope_theta 'big'", "warning"),
        ("rms_norm_eps", -1e-5, "rms_norm_eps -1e-05", "warning"),
        ("rope_scaling", {"rope_type": "yarn", "factor": "x"}, "factor 'x'", "warning"),
        ("anything", [1, {"deep": [{"__float__": "NaN"}]}], "deep NaN", "warning"),
        ("text_config", "foo", "text_config 'foo', where a section of keys and values belongs", "warning"),
        ("quantization_config", [1], "quantization_config [1]", "warning"),
        ("rope_scaling", 2.0, "rope_scaling 2.0", "warning"),
        ("architectures", "LlamaForCausalLM", "where a list of class names belongs", "warning"),
        ("model_type", ["llama"], "states model_type ['llama'], which is no name", "warning"),
        ("model_type", None, "states no model_type", "warning"),
    ],
)
def test_each_impossible_statement_is_shown(key: str, value: Any, said: str, severity: str) -> None:
    (finding,) = statements({**SMOLLM2, key: value})
    assert said in finding.message
    assert finding.severity == severity
    assert finding.subject.name.startswith(f"config.json#/{key}")
    assert len(finding.message) < 250


def test_without_tensors_nothing_is_proved() -> None:
    (finding,) = statements({**SMOLLM2, "num_hidden_layers": -3}, weights=False)
    assert finding.severity == "warning"


def test_the_text_part_is_named() -> None:
    config = {"model_type": "x", "text_config": {**SMOLLM2, "num_attention_heads": -1}}
    (finding,) = statements(config)
    assert finding.subject.name == "config.json#/text_config/num_attention_heads"


@pytest.mark.parametrize(
    "stated",
    [
        {"sliding_window": False},
        {"sliding_window": -1},
        {"num_key_value_heads": None},
        {"num_key_value_heads": [3, 3, None]},
        {"num_attention_heads": 9.0},
        {"n_shared_experts": 0},
        {"time_step_limit": [0.0, {"__float__": "Infinity"}]},
        {"rope_theta": [1e4, 1e6]},
        {"rope_scaling": None, "quantization_config": None},
        {"language_model": "a word"},
    ],
)
def test_what_published_configs_say_is_no_finding(stated: dict[str, Any]) -> None:
    assert statements({**SMOLLM2, **stated}) == []


def test_published_configs_raise_none() -> None:
    paths = sorted((FIXTURES / "configs").glob("*/config.json"))
    records = [take_inventory(open_release(str(path)), expected=False) for path in paths]
    assert len(records) == 3
    assert [f.message for record in records for f in record.findings if f.code in STATEMENTS] == []


def test_gguf_names_its_architecture_itself() -> None:
    release = make_release({"num_hidden_layers": 2}, gguf_tensors(2), format="gguf")
    assert not [
        finding for finding in take_inventory(release, expected=False).findings if finding.code in STATEMENTS
    ]


def test_nothing_stated_is_no_finding_of_a_sound_release() -> None:
    assert take_inventory(make_release(MIXTRAL, mixtral_tensors())).findings == ()


@pytest.mark.parametrize("name", ["x.gguf", "model.safetensors", "pytorch_model.bin", "model.pt"])
def test_only_weights_behind_a_refused_link_fail(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    (tmp_path / name).write_bytes(b"elsewhere")
    (folder / name).symlink_to(tmp_path / name)
    record = take_inventory(open_release(str(folder)), expected=False)
    assert record.verdict is Verdict.FAIL
    (finding,) = [finding for finding in record.findings if finding.severity == "error"]
    assert (finding.code, finding.subject.name) == ("INV013", name)


def test_a_refused_link_beside_weights_is_a_remark(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    write_checkpoint(folder, [("a.weight", "bf16", (4, 2), bytes(16))], shards=1, metadata={})
    (folder / "x.gguf").symlink_to(tmp_path / "gone.gguf")
    (folder / "notes.bin.txt").symlink_to(tmp_path / "gone.txt")
    links = [
        f for f in take_inventory(open_release(str(folder)), expected=False).findings if "link" in f.message
    ]
    assert [(finding.code, finding.severity) for finding in links] == [("INV032", "info")] * 2
