"""The stage as a task: taken once, read again, taken anew for a changed byte count."""

from __future__ import annotations

import json
from pathlib import Path

from day0.adapters.checkpoints.writer import write_checkpoint
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.task import run
from day0.tasks.job import StageJob, read_ref
from day0.tasks.verdict import Verdict


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
