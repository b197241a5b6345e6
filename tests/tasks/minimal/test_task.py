"""What the record of a minimal run depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from day0.adapters.base.errors import SkeletonError
from day0.adapters.base.values import Fingerprint
from day0.adapters.base.workaround import Chosen
from day0.tasks.inventory.task import run as take
from day0.tasks.job import RecordRef, StageJob
from day0.tasks.minimal import task
from day0.tasks.minimal.record import MinimalFacts, MinimalRecord
from support.stored_coverage import store_coverage
from support.tiny_models import save_tiny

FINGERPRINT = Fingerprint(family="test", exact={})


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageJob:
    """A stage whose target need not be asked."""
    facts = MinimalFacts(fingerprint=FINGERPRINT, tokens=[[1]], nodes=[])
    monkeypatch.setattr(
        task, "_measure", lambda job, chosen: MinimalRecord.conclude(findings=[], facts=facts)
    )
    folder = save_tiny("qwen3_moe", tmp_path / "model", shard="1KB")
    return StageJob(
        run="r",
        store=str(tmp_path / "store"),
        model=str(folder),
        target="eager@cpu/bf16",
        fingerprint=FINGERPRINT,
    )


def ran(job: StageJob) -> RecordRef:
    """The stage after the inventory of what now lies in the folder."""
    counted = take(job.model_copy(update={"target": "", "fingerprint": None}))
    return task.run(job, counted, store_coverage(job))


def change(job: StageJob, *, only: str) -> None:
    """Changes the last byte of a shard that holds nothing but tensors of that name's start."""
    for shard in sorted(Path(job.model).glob("*.safetensors")):
        with safe_open(shard, "pt") as tensors:
            held = list(tensors.keys())
        if all(name.startswith(only) for name in held):
            data = bytearray(shard.read_bytes())
            data[-1] ^= 1
            shard.write_bytes(data)
            return
    raise AssertionError(f"no shard holds {only} alone")


def test_only_bytes_that_the_cut_may_hold_count(job: StageJob) -> None:
    first = ran(job)
    assert ran(job).reused
    change(job, only="model.layers.2.")  # layers 0 and 1 show both kinds
    second = ran(job)
    assert (second.reused, second.key) == (True, first.key)
    for name in ("model.layers.1.", "model.embed_tokens"):
        change(job, only=name)
        assert not ran(job).reused


def test_what_coverage_chose_counts(job: StageJob) -> None:
    counted = take(job.model_copy(update={"target": "", "fingerprint": None}))
    plain = task.run(job, counted, store_coverage(job))
    eager = Chosen(id="attn=eager", options={"attn": "eager"}, checked="run")
    switched = task.run(job, counted, store_coverage(job, [eager]))
    assert not switched.reused
    assert switched.key != plain.key
    assert task.run(job, counted, store_coverage(job, [eager])).reused


def test_without_a_structure_every_byte_counts(job: StageJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise SkeletonError("no such architecture", code="E401")

    monkeypatch.setattr("day0.adapters.models.skeleton_store.load_or_build_skeleton", fails)
    assert not ran(job).reused
    assert ran(job).reused
    change(job, only="model.layers.2.")
    assert not ran(job).reused


def test_a_reused_record_needs_no_torch(job: StageJob) -> None:
    ran(job)
    code = (
        "import sys\n"
        "from day0.tasks.inventory.task import run as take\n"
        "from day0.tasks.job import RecordRef, StageJob\n"
        "from day0.tasks.minimal.task import run\n"
        "job = StageJob.model_validate_json(sys.argv[1])\n"
        "covered = RecordRef.model_validate_json(sys.argv[2])\n"
        "counted = take(job.model_copy(update={'target': '', 'fingerprint': None}))\n"
        "assert run(job, counted, covered).reused\n"
        "assert not {'torch', 'transformers', 'prefect'} & set(sys.modules)\n"
    )
    arguments = [job.model_dump_json(), store_coverage(job).model_dump_json()]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=60)
