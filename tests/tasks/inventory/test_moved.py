"""A release that changes while its inventory is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources.resolve import open_source
from day0.tasks.finding import Finding
from day0.tasks.inventory.take import take_inventory
from support.local_hub import LocalHub
from support.raw_checkpoints import write_sharded
from support.small_releases import SMOLLM2, smollm2_tensors

MODEL = "org/small"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    layout = {name: ("BF16", shape) for name, (_, shape) in smollm2_tensors().items()}
    write_sharded(folder, layout, 2, sparse=True)
    return folder


def moved(model: str, change: object = None) -> list[Finding]:
    release = open_release(model)
    if callable(change):
        change()
    record = take_inventory(release, expected=False)
    return [finding for finding in record.findings if finding.code == "INV036"]


def test_a_branch_that_moves_is_a_warning_and_the_record_stays_pinned(
    local_hub: LocalHub, folder: Path
) -> None:
    repository = local_hub.add(MODEL, folder)
    assert moved(MODEL) == []
    before = repository.commit

    def push() -> None:
        repository.refs["main"] = "e" * 40

    (finding,) = moved(MODEL, push)
    assert (finding.severity, finding.subject.name) == ("warning", "main")
    assert before in finding.message
    assert "e" * 40 in finding.message


def test_a_run_that_pinned_the_branch_itself_still_knows_it(local_hub: LocalHub, folder: Path) -> None:
    repository = local_hub.add(MODEL, folder)
    commit = open_source(MODEL).revision

    def push() -> None:
        repository.refs["main"] = "e" * 40

    assert len(moved(f"{MODEL}@{commit}", push)) == 1


def test_a_hash_that_was_named_cannot_move(local_hub: LocalHub, folder: Path) -> None:
    repository = local_hub.add(MODEL, folder)

    def push() -> None:
        repository.refs["main"] = "e" * 40

    assert moved(f"{MODEL}@{repository.commit}", push) == []
    assert local_hub.count(f"/api/models/{MODEL}") == 0


def test_a_hub_in_trouble_does_not_cost_the_inventory(local_hub: LocalHub, folder: Path) -> None:
    local_hub.add(MODEL, folder)
    assert moved(MODEL, lambda: local_hub.fail("/api/*", status=503, times=100)) == []


def test_a_file_of_a_folder_that_changes(folder: Path) -> None:
    assert moved(str(folder)) == []
    (finding,) = moved(str(folder), lambda: (folder / "config.json").write_text("{}"))
    assert finding.subject.name == "config.json"
    (finding,) = moved(str(folder), lambda: (folder / "more.json").write_text("{}"))
    assert finding.subject.name == "more.json"
