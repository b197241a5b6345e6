"""The same structure with other content: what the files hold is part of the record, and a diff tells it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.structural_change import StructuralDiff
from day0.tasks.inventory.structural_diff import structural_diff
from day0.tasks.inventory.take import take_inventory
from day0.tasks.inventory.verification import with_verification
from day0.tasks.inventory.verify import verify_weights
from support.local_hub import LocalHub
from support.raw_checkpoints import write_filled

CODE = "class Model:\n    def forward(self, x):\n        return x\n"
CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "auto_map": {"AutoModel": "modeling_x.Model"}}
TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}


def write(folder: Path, seed: str = "") -> Path:
    """A release whose weights follow from the seed."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "modeling_x.py").write_text(CODE)
    (folder / "notes.yaml").write_text("a: 1\n")
    write_filled(folder / "model.safetensors", {"model.norm.weight": ("BF16", (64,))}, seed)
    return folder


def taken(model: object) -> InventoryRecord:
    return take_inventory(open_release(str(model)))


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(folder, folder.with_name("copy")))


def content(diff: StructuralDiff) -> dict[str, str]:
    return {item.name: item.topic for item in diff.changed if item.name.startswith("content of ")}


def test_weights_of_another_hash_on_the_hub(local_hub: LocalHub, tmp_path: Path) -> None:
    for name in ("one", "two"):
        local_hub.add(f"org/{name}", write(tmp_path / name, name))
    diff = structural_diff(taken("org/one"), taken("org/two"))
    assert not diff.same
    assert diff.headline == "Same structure, other content: file model.safetensors."
    (changed,) = diff.changed
    hashes = [
        f"sha256:{hashlib.sha256((tmp_path / name / 'model.safetensors').read_bytes()).hexdigest()}"
        for name in ("one", "two")
    ]
    assert (changed.topic, changed.name) == ("weights", "content of model.safetensors")
    assert [changed.before, changed.after] == hashes


@pytest.mark.parametrize(
    ("path", "text", "topic"),
    [
        ("tokenizer.json", json.dumps({**TOKENIZER, "normalizer": {"type": "Lowercase"}}), "tokenizer"),
        ("modeling_x.py", CODE.replace("return x", "return -x"), "code"),
        ("notes.yaml", "a: 2\n", "files"),
    ],
)
def test_a_small_file_of_other_content(tmp_path: Path, path: str, text: str, topic: str) -> None:
    folder = write(tmp_path / "one")
    other = copied(folder)
    (other / path).write_text(text)
    diff = structural_diff(taken(folder), taken(other))
    assert content(diff) == {f"content of {path}": topic}
    assert not diff.same
    assert diff.headline.startswith(f"Same structure, other content: file {path}.")


def test_a_file_more_or_less(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    other = copied(folder)
    (other / "notes.yaml").rename(other / "more.yaml")
    diff = structural_diff(taken(folder), taken(other))
    found = {item.name: (item.before is None, item.after is None) for item in diff.changed}
    assert found == {"content of more.yaml": (True, False), "content of notes.yaml": (False, True)}


def test_weights_under_another_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    other = copied(folder)
    (other / "model.safetensors").rename(other / "weights.safetensors")
    diff = structural_diff(taken(folder), taken(other))
    assert [(item.name, item.before, item.after) for item in diff.changed] == [
        ("weight files", ["model.safetensors"], ["weights.safetensors"])
    ]


def test_a_copy_is_the_same_as_far_as_it_was_compared(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    before, after = taken(folder), taken(copied(folder))
    diff = structural_diff(before, after)
    assert diff.same
    assert list(diff.uncompared) == ["model.safetensors"]
    assert diff.headline == (
        "Nothing changed in what was compared; the bytes of model.safetensors were not: no hash is known on "
        "both sides, and --verify makes one."
    )
    assert structural_diff(before, before).headline == "Nothing changed."


def test_what_verification_read_is_compared(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")

    def verified(model: Path) -> InventoryRecord:
        release = open_release(str(model))
        return with_verification(take_inventory(release), verify_weights(release, store))

    folder = write(tmp_path / "one")
    same, other = copied(folder), write(tmp_path / "two", "other")
    assert structural_diff(verified(folder), verified(same)).headline == "Nothing changed."
    diff = structural_diff(verified(folder), verified(other))
    assert diff.headline == "Same structure, other content: file model.safetensors."


def test_a_folder_and_the_hub_are_compared_by_what_both_have(local_hub: LocalHub, tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    local_hub.add("org/one", folder)
    diff = structural_diff(taken(folder), taken("org/one"))
    assert content(diff) == {}
    assert diff.same


def test_a_record_of_before_says_nothing_of_contents(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    record = taken(folder)
    facts: dict[str, Any] = record.facts.model_dump(mode="json")
    facts.pop("small_files")
    for shard in facts["shards"]:
        shard.pop("content")
    old = InventoryRecord.model_validate({**record.model_dump(mode="json"), "facts": facts})
    assert content(structural_diff(old, record)) == {}
