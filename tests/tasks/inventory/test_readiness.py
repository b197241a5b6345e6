"""Complete, arriving, broken, announced only: each state by what shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.raw_checkpoints import write_filled, write_sharded
from support.small_releases import MIXTRAL, mixtral_tensors

LAYOUT = {name: ("BF16", shape) for name, (_, shape) in mixtral_tensors().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    return tmp_path


def take(folder: Path) -> InventoryRecord:
    return take_inventory(open_release(str(folder)), expected=False)


def test_an_index_without_any_shard_is_an_upload_that_has_begun(folder: Path) -> None:
    paths = write_sharded(folder, LAYOUT, 3)
    for path in paths:
        path.unlink()
    record = take(folder)
    assert (record.facts.readiness.state, record.facts.format) == ("arriving", "none")
    assert list(record.facts.readiness.awaited) == [path.name for path in paths]
    assert record.facts.reconciliation.index.tensors == 41
    assert sum(row.tensors for row in record.facts.reconciliation.exceptions) == 41
    assert record.verdict == "fail"


def test_numbered_shards_without_an_index_are_awaited_by_name(folder: Path) -> None:
    for number in (0, 3):
        write_filled(folder / f"model-{number:06d}-of-000004.safetensors", {f"t{number}": ("F32", (2,))})
    ready = take(folder).facts.readiness
    assert ready.state == "arriving"
    assert list(ready.awaited) == [f"model-{number:06d}-of-000004.safetensors" for number in (1, 2)]


def test_pickles_that_are_still_on_their_way(folder: Path) -> None:
    (folder / "pytorch_model-00001-of-00003.bin").write_bytes(b"x")
    ready = take(folder).facts.readiness
    assert ready.state == "arriving"
    assert [path[14:19] for path in ready.awaited] == ["00002", "00003"]


@pytest.mark.parametrize("suffix", [".incomplete", ".part", ".aria2", ".crdownload"])
def test_a_partial_file_in_the_place_of_the_weights(folder: Path, suffix: str) -> None:
    (folder / f"model.safetensors{suffix}").write_bytes(b"x" * 10)
    record = take(folder)
    assert record.facts.readiness.state == "arriving"
    assert list(record.facts.readiness.awaited) == ["model.safetensors"]
    assert [finding.code for finding in record.findings if finding.code == "INV045"]


def test_leftovers_beside_whole_weights_are_a_remark(folder: Path) -> None:
    write_filled(folder / "model.safetensors", LAYOUT)
    hidden = folder / ".cache" / "huggingface" / "download"
    hidden.mkdir(parents=True)
    (hidden / "abc.123.incomplete").write_bytes(b"x")
    (hidden / "model.safetensors.lock").write_bytes(b"")  # locks stay after every download
    record = take(folder)
    assert record.facts.readiness.state == "complete"
    (finding,) = [finding for finding in record.findings if finding.code == "INV046"]
    assert finding.evidence == (".cache/huggingface/download/abc.123.incomplete",)


def test_a_config_alone(folder: Path) -> None:
    record = take(folder)
    assert record.facts.readiness.state == "config_only"
    assert take(folder / "config.json").facts.readiness.state == "config_only"


def test_a_short_shard_is_broken_whatever_else_is_missing(folder: Path) -> None:
    paths = write_sharded(folder, LAYOUT, 3)
    paths[2].unlink()
    with paths[1].open("r+b") as file:
        file.truncate(paths[1].stat().st_size - 5)
    ready = take(folder).facts.readiness
    assert ready.state == "broken"
    assert any("shorter" in reason for reason in ready.reasons)


def test_pointers_are_broken_whatever_is_missing(folder: Path) -> None:
    paths = write_sharded(folder, LAYOUT, 3)
    paths[2].unlink()
    paths[1].write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    assert take(folder).facts.readiness.state == "broken"


def test_no_tokenizer_is_said_and_changes_no_state(folder: Path) -> None:
    write_filled(folder / "model.safetensors", LAYOUT)
    ready = take(folder).facts.readiness
    assert (ready.state, list(ready.reasons)) == ("complete", ["no tokenizer file is there"])
    (folder / "tokenizer.json").write_text("{}")
    assert list(take(folder).facts.readiness.reasons) == []
