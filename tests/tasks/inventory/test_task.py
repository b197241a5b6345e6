"""The stage as a task: taken once, read again, taken anew for a changed byte count."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.safetensors import _READ
from day0.adapters.checkpoints.writer import write_checkpoint
from day0.adapters.sources import hub_settings
from day0.flows.verification_text import verification_lines
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.task import run
from day0.tasks.job import RunOptions, StageJob, read_ref
from day0.tasks.verdict import Verdict
from support.local_hub import LocalHub


def test_reuse_follows_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1}))
    tensors = [("model.embed_tokens.weight", "bf16", (4, 2), bytes(16))]
    write_checkpoint(folder, tensors, shards=1, metadata={"format": "pt"})
    job = StageJob(run="r1", store=str(tmp_path / "store"), model=str(folder))

    first, second = run(job), run(job)
    assert (first.reused, second.reused) == (False, True)
    assert first.key == second.key
    assert read_ref(job, InventoryRecord, first).facts.totals.logical_params == 8

    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes())
    assert run(job).key != first.key


def test_truncated_shard_and_pickles_end_in_a_record_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    job = StageJob(run="r1", store=str(tmp_path / "store"), model=str(folder))
    pickled = read_ref(job, InventoryRecord, run(job))
    assert pickled.verdict is Verdict.FAIL
    assert [finding.code for finding in pickled.findings] == ["INV003", "INV077"]  # and it is no pickle

    write_checkpoint(folder, [("a.weight", "bf16", (4, 2), bytes(16))], shards=1, metadata={})
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-3])
    cut = read_ref(job, InventoryRecord, run(job))
    assert cut.verdict is Verdict.FAIL
    assert next(finding for finding in cut.findings if finding.code == "INV001").subject.name == shard.name
    assert cut.facts.totals.logical_params == 8


def planted(folder: Path, *, number: float = math.nan) -> Path:
    """A release with one number in one tensor."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1}))
    data = struct.pack("<4f", 1, number, 1, 1)
    write_checkpoint(folder, [("model.embed_tokens.weight", "fp32", (2, 2), data)], shards=1, metadata={})
    return folder


def job_of(tmp_path: Path, model: object, **options: Any) -> StageJob:
    return StageJob(run="r1", store=str(tmp_path / "store"), model=str(model), options=RunOptions(**options))


def codes(record: InventoryRecord) -> list[str]:
    return [finding.code for finding in record.findings]


def taken(job: StageJob) -> InventoryRecord:
    return read_ref(job, InventoryRecord, run(job))


def test_what_verification_found_is_not_forgotten(tmp_path: Path) -> None:
    folder = planted(tmp_path / "model")
    plain, verify = job_of(tmp_path, folder), job_of(tmp_path, folder, verify=True)
    assert taken(plain).facts.verification is None
    asked = taken(verify)
    again = taken(plain)
    assert asked.facts.verification is not None
    assert again.facts.verification is not None
    assert not asked.facts.verification.earlier
    assert again.facts.verification == asked.facts.verification.model_copy(update={"earlier": True})
    assert again.verdict is Verdict.FAIL
    (found,) = [finding for finding in again.findings if finding.code == "INV082"]
    assert found.message.endswith("an earlier --verify found this in the same files")
    assert "INV087" not in codes(again)
    assert ("verified", "by an earlier --verify; the files are the ones that it read") in list(
        verification_lines(again.facts.verification)
    )


def test_other_bytes_are_not_what_was_verified(tmp_path: Path) -> None:
    folder = planted(tmp_path / "model")
    taken(job_of(tmp_path, folder, verify=True))
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes() + b"")
    os.utime(shard, ns=(1, 1))
    record = taken(job_of(tmp_path, folder))
    assert record.facts.verification is None
    assert "INV082" not in codes(record)


def test_the_last_verification_counts(tmp_path: Path) -> None:
    folder = planted(tmp_path / "model", number=1.0)
    shard = next(folder.glob("*.safetensors"))
    held, times = shard.read_bytes(), shard.stat()
    seen = []
    for data in (held, held, held[:-1] + b"\x7f", held):
        with shard.open("r+b") as file:
            file.write(data)
        os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
        taken(job_of(tmp_path, folder, verify=True))
        seen.append("INV081" in codes(taken(job_of(tmp_path, folder))))
    assert seen == [False, False, True, False]


def test_offline_uses_the_record_that_was_read_in_full(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_hub.add("org/kept", planted(tmp_path / "model", number=1.0))
    online = taken(job_of(tmp_path, "org/kept"))
    assert online.facts.basis == "headers"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub_settings, "_BY_SETTING", set())
    _READ.clear()
    assert taken(job_of(tmp_path, "org/kept")) == online
    other = taken(job_of(tmp_path / "elsewhere", "org/kept"))
    assert other.facts.readiness.state == "listing_only"
    (finding,) = [finding for finding in other.findings if finding.code == "INV037"]
    assert finding.remedy.startswith("Unset HF_HUB_OFFLINE")
    assert "terms" not in finding.remedy
