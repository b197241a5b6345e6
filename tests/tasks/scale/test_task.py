"""The stage as a task: one real climb on the CPU, then the stored record."""

from __future__ import annotations

import shutil
from pathlib import Path

from day0.adapters.base.values import Fingerprint
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.task import run as take
from day0.tasks.job import RecordRef, StageJob, read_ref
from day0.tasks.minimal.record import CutRelease, MinimalFacts, MinimalRecord
from day0.tasks.record_store import save_record
from day0.tasks.scale.record import ScaleRecord
from day0.tasks.scale.task import run
from day0.tasks.verdict import Verdict
from support.tiny_models import save_tiny

FINGERPRINT = Fingerprint(family="test", exact={})


def store_minimal(job: StageJob, folder: Path, size: int) -> RecordRef:
    """A minimal run whose cut-down release is the whole tiny model."""
    name = "cuts/whole"
    shutil.copytree(folder, job.run_store.path(name))
    cut = CutRelease(layers=[0, 1, 2], tensors=29, bytes=size, config_changes=[])
    facts = MinimalFacts(fingerprint=FINGERPRINT, tokens=[[1]], nodes=[], cut=cut)
    record = MinimalRecord.conclude(findings=[], key="k", facts=facts, files={"cut": name})
    save_record(job.run_store, record)
    return RecordRef(stage="minimal", target=job.target, key="k", verdict=Verdict.PASS, reused=False)


def test_real_climb_and_reuse(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path / "model")
    job = StageJob(
        run="r",
        store=str(tmp_path / "store"),
        model=str(folder),
        target="eager@cpu/fp32",
        fingerprint=FINGERPRINT,
    )
    counted = take(job.model_copy(update={"target": "", "fingerprint": None}))
    size = read_ref(job, InventoryRecord, counted).facts.totals.data_bytes
    minimal = store_minimal(job, folder, size)
    numerics = minimal.model_copy(update={"stage": "numerics"})

    first, second = (run(job, counted, minimal, numerics) for _ in range(2))
    assert (first.reused, second.reused) == (False, True)
    record = read_ref(job, ScaleRecord, first)
    assert [tier.outcome for tier in record.facts.tiers] == ["passed"] * 4
    assert record.verdict is Verdict.PASS
    assert {entry.world_size for entry in record.observations.bandwidths} == {2, 4}
    assert all(entry.bus_bytes_per_second > 0 for entry in record.observations.bandwidths)
    assert [(point.batch, point.length) for point in record.observations.growth] == [
        (1, 16),
        (1, 64),
        (4, 16),
        (4, 64),
    ]
    assert all(point.tokens_per_second > 0 for point in record.observations.growth)
    assert record.observations.device_flops > 0
