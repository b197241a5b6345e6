"""The plan as a stage: computed once for the same inventory."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.tasks.inventory.record import STAGE as INVENTORY
from day0.tasks.job import RecordRef, StageJob, read_ref
from day0.tasks.plan import make
from day0.tasks.plan.record import PlanRecord
from day0.tasks.plan.task import run
from day0.tasks.record_store import save_record
from support.synthetic_inventory import Model, make_inventory

SMALL = Model("small", 2, 64, 8, 8, 8, 640, dense_width=128)


def stored(job: StageJob, model: Model, key: str) -> RecordRef:
    record = make_inventory(model).model_copy(update={"key": key})
    save_record(job.run_store, record)
    return RecordRef(stage=INVENTORY, target="", key=key, verdict=record.verdict, reused=False)


def test_a_plan_is_reused_for_the_same_inventory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = StageJob(run="r", store=str(tmp_path), model="small")
    first = run(job, stored(job, SMALL, "a"))
    assert not first.reused
    assert read_ref(job, PlanRecord, first).facts.recommended

    def refuse(inventory: object) -> PlanRecord:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(make, "make_plan", refuse)
        again = run(job, stored(job, SMALL, "b"))
    assert again.reused
    assert again.key == first.key
    other = Model("small", 2, 64, 8, 8, 8, 1280, dense_width=128)
    assert run(job, stored(job, other, "c")).key != first.key
