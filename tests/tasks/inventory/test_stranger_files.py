"""Files that are not what they should be: further pickles, hidden archives, pointers, unknown tokens."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.checkpoints.release import open_release
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.raw_checkpoints import write_filled
from support.small_releases import MIXTRAL

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
PLAIN = pickle.dumps({}, 2)


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("id",)


EVIL = pickle.dumps(Evil(), 2)


def archive(data: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr("archive/data.pkl", data)
    return held.getvalue()


def take(folder: Path, files: dict[str, bytes | str], **stated: Any) -> InventoryRecord:
    config = MIXTRAL | {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 100} | stated
    (folder / "config.json").write_text(json.dumps(config))
    write_filled(folder / "model.safetensors", {
        "model.embed_tokens.weight": ("BF16", (100, 32)), "lm_head.weight": ("BF16", (100, 32)),
        "model.layers.0.mlp.up_proj.weight": ("BF16", (8, 32)),
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (56,)),
    })  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return take_inventory(open_release(str(folder)), expected=False)


def told(record: InventoryRecord, code: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code == code]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PLAIN + EVIL, "behind the pickle's end"),
        (PLAIN + b"\xff" * 9, "goes on for 9 bytes"),
        (b"GARBAGE" * 10 + archive(EVIL), "one stands behind the first bytes"),
        (b"\xff" * 100 + archive(EVIL), "one stands behind the first bytes"),
        (b"\xff" * 100, "is no pickle"),
    ],
)
def test_a_pickle_is_listed_beyond_its_end_or_said_not_to_be(
    tmp_path: Path, data: bytes, expected: str
) -> None:
    record = take(tmp_path, {"pytorch_model.bin": data})
    assert expected in told(record, "INV077")[0].message
    assert bool(told(record, "INV076")) == (b"system" in data)


def test_raw_numbers_of_another_name_are_no_pickle(tmp_path: Path) -> None:
    assert not told(take(tmp_path, {"rope_table.bin": b"\xff" * 100}), "INV077")


def test_a_pointer_in_place_of_the_index(tmp_path: Path) -> None:
    record = take(tmp_path, {"model.safetensors.index.json": POINTER})
    assert "git-lfs pointer" in told(record, "INV010")[0].message
    assert "git lfs pull" in told(record, "INV010")[0].message


def test_a_pointer_in_place_of_the_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"git-lfs pointer.*E103.*git lfs pull"):
        take(tmp_path, {"config.json": POINTER})


def test_a_rotary_table_is_held_against_a_config_without_rope(tmp_path: Path) -> None:
    assert "56 entries" in told(take(tmp_path, {}, rope_theta=None), "INV074")[0].message


@pytest.mark.parametrize("template", [5, ["{{ x }}"], [{"name": "default"}], {"default": None}])
def test_a_chat_template_that_is_no_text(tmp_path: Path, template: Any) -> None:
    files: dict[str, Any] = {"tokenizer_config.json": json.dumps({"chat_template": template})}
    assert "where a template's text belongs" in told(take(tmp_path, files), "INV065")[0].message


def test_a_token_that_the_vocabulary_does_not_have(tmp_path: Path) -> None:
    vocabulary = {f"t{i}": i for i in range(100)}
    files: dict[str, bytes | str] = {
        "tokenizer.json": json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}}),
        "tokenizer_config.json": json.dumps({"bos_token": "t1", "eos_token": "<nope>", "pad_token": None}),
    }
    record = take(tmp_path, files)
    assert [f.subject.name for f in told(record, "INV062")] == ["tokenizer_config.json#/eos_token"]


def test_a_decoder_that_begins_out_of_range(tmp_path: Path) -> None:
    found = told(take(tmp_path, {}, decoder_start_token_id=4000), "INV063")
    assert [f.subject.name for f in found] == ["config.json#/decoder_start_token_id"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("adapter_config.json", "is an adapter"), ("model_index.json", "is a pipeline of diffusers")],
)
def test_what_a_repository_without_a_config_is(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / name).write_text("{}")
    write_filled(tmp_path / "weights.safetensors", {"a.weight": ("BF16", (8, 8))})
    record = take_inventory(open_release(str(tmp_path)), expected=False)
    assert expected in told(record, "INV099")[0].message
