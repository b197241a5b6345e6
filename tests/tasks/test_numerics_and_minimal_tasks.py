"""Both stages as the flow calls them: keys, reuse, a real worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.open import open_target
from day0.tasks.inventory import task as inventory
from day0.tasks.job import RecordRef, StageJob, read_ref
from day0.tasks.minimal import task as minimal
from day0.tasks.minimal.record import MinimalRecord
from day0.tasks.numerics import task as numerics
from day0.tasks.numerics.record import NumericsRecord
from support.stored_coverage import store_coverage
from support.tiny_releases import TinyRelease


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_stages_run_in_a_worker_and_are_reused(
    tiny: Callable[[str], TinyRelease], tmp_path: Path
) -> None:
    job = StageJob(run="r1", store=str(tmp_path), model=str(tiny("llama").folder))
    counted = inventory.run(job)
    text = "eager@cpu/bf16"
    with open_target(TargetSpec.parse(text)) as target:
        fingerprint = target.describe().fingerprint
    job = job.model_copy(update={"target": text, "fingerprint": fingerprint})
    covered = store_coverage(job)
    ran = minimal.run(job, counted, covered)
    compared = numerics.run(job, counted, covered, ran)
    assert (ran.verdict, compared.verdict, ran.reused, compared.reused) == ("pass", "pass", False, False)
    record = read_ref(job, MinimalRecord, ran)
    assert (tmp_path / record.files["cut"] / "config.json").is_file()
    facts = read_ref(job, NumericsRecord, compared).facts_digest

    again = [minimal.run(job, counted, covered), numerics.run(job, counted, covered, ran)]
    assert [ref.reused for ref in again] == [True, True]
    options = job.options.model_copy(update={"fresh": True})
    fresh = numerics.run(job.model_copy(update={"options": options, "run": "r2"}), counted, covered, ran)
    assert not fresh.reused
    assert read_ref(job, NumericsRecord, fresh).facts_digest == facts


def test_a_comparison_under_another_bound_of_memory_is_made_anew(
    tiny: Callable[[str], TinyRelease], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a small bound left out (stock transformers as the check) must not stand for a large one.
    job = StageJob(run="r1", store=str(tmp_path), model=str(tiny("llama").folder), target="eager@cpu/bf16")
    job = job.model_copy(update={"fingerprint": Fingerprint(family="test", exact={})})
    counted, covered = inventory.run(job), store_coverage(job)
    keys: list[str] = []

    def noted(_: StageJob, __: object, ___: str, key: str, ____: object) -> RecordRef:
        keys.append(key)
        return covered

    monkeypatch.setattr(numerics, "reuse_or_run", noted)
    for bound in (2**30, 2**33, 2**33):
        options = job.options.model_copy(update={"memory_limit": bound})
        numerics.run(job.model_copy(update={"options": options}), counted, covered)
    assert keys[0] != keys[1] == keys[2]
