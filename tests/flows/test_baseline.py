from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.flows.baseline import accept_run, list_baselines, read_baseline
from day0.reports.assemble import assemble
from day0.reports.model import Stages
from day0.reports.store import write_report
from support.stand_in_stages import small_inventory


def write_run(store: RunStore, run: str, model: str, *targets: str) -> None:
    stages = {target: Stages() for target in targets}
    write_report(store, assemble(run, model, small_inventory(model), stages))


def test_the_accepted_run_is_kept_for_each_target(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    write_run(store, "20260101T000000Z-a", "org/name", "eager@cpu", "inductor@cpu")
    accept_run(store, None, owner="ada")
    found = list_baselines(store)
    assert [(each.target, each.owner) for each in found] == [("eager@cpu", "ada"), ("inductor@cpu", "ada")]
    store.remove("runs")
    kept = read_baseline(store, "org/name", "eager@cpu")
    assert kept is not None
    assert [result.target for result in kept.report.targets] == ["eager@cpu"]
    assert read_baseline(store, "org/name", "openvino@cpu") is None
    assert read_baseline(store, "org/other", "eager@cpu") is None


def test_one_target_of_one_run_may_be_accepted(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    write_run(store, "20260101T000000Z-a", "org/name", "eager@cpu", "inductor@cpu")
    write_run(store, "20260102T000000Z-b", "org/name", "eager@cpu")
    accept_run(store, "20260101T000000Z-a", target="eager@cpu")
    (kept,) = list_baselines(store)
    assert (kept.report.run, kept.target) == ("20260101T000000Z-a", "eager@cpu")


def test_a_folder_is_known_by_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    store = RunStore(tmp_path / "store")
    write_run(store, "20260101T000000Z-a", "./model", "eager@cpu")
    accept_run(store, None)
    assert read_baseline(store, str(tmp_path / "model"), "eager@cpu") is not None


def test_what_is_not_there_cannot_be_accepted(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(InputError) as caught:
        accept_run(store, None)
    assert caught.value.code == "E159"
    write_run(store, "20260101T000000Z-a", "org/name", "eager@cpu")
    with pytest.raises(InputError, match="eager@cpu"):
        accept_run(store, "20260101T000000Z-a", target="nope@cpu")
    with pytest.raises(InputError):
        accept_run(store, "nope")


def test_a_damaged_baseline_is_named(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    write_run(store, "20260101T000000Z-a", "org/name", "eager@cpu")
    accept_run(store, None)
    (file,) = store.list("baselines")
    store.write(f"baselines/{file}", b"{}")
    with pytest.raises(InputError) as caught:
        read_baseline(store, "org/name", "eager@cpu")
    assert caught.value.code == "E158"
    assert list_baselines(store) == []
