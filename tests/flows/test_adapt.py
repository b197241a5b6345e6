from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.base.errors import (
    CheckpointError,
    InputError,
    SkeletonError,
    WorkerCrashed,
    WorkerUnusable,
)
from day0.adapters.base.run_store import RunStore
from day0.reports.model import Report
from day0.reports.store import read_report
from support.stand_in_stages import StandIns

EAGER, ONNX = "eager@cpu/bf16", "onnxruntime@cpu/fp32"
STAGES = ("coverage", "minimal", "numerics", "scale")

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> StandIns:
    made = StandIns()
    monkeypatch.setattr("day0.flows.stage_runs.stage_function", made.stage_function)
    monkeypatch.setattr("day0.flows.adapt.describe_target", made.describe)
    return made


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def adapt(model: str, store: Path, *targets: str) -> Report:
    from day0.flows.adapt import adapt as flow

    run = flow(model, list(targets), store=str(store))
    return read_report(RunStore(store), run)


def test_all_stages_of_all_targets_run_and_leave_a_report(
    stand_ins: StandIns, model: str, tmp_path: Path
) -> None:
    report = adapt(model, tmp_path / "store", EAGER, ONNX)
    wanted = {"inventory", "plan"} | {f"{stage} {target}" for stage in STAGES for target in (EAGER, ONNX)}
    assert dict(stand_ins.computed) == dict.fromkeys(wanted, 1)
    assert report.verdict == "pass"
    assert [result.target for result in report.targets] == [EAGER, ONNX]
    log = tmp_path / "store" / "runs" / report.run / "logs" / "day0.jsonl"
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    assert f"coverage on {ONNX}: pass, done" in said


def test_a_second_run_reuses_every_record(stand_ins: StandIns, model: str, tmp_path: Path) -> None:
    adapt(model, tmp_path / "store", EAGER)
    before = dict(stand_ins.computed)
    report = adapt(model, tmp_path / "store", EAGER)
    assert dict(stand_ins.computed) == before
    assert set(report.reused.values()) == {True}
    assert len(report.reused) == 6


def test_an_error_in_one_stage_blocks_that_stage_only(
    stand_ins: StandIns, model: str, tmp_path: Path
) -> None:
    stand_ins.errors[f"coverage {EAGER}"] = SkeletonError("unknown model type 'nope'")
    stand_ins.errors[f"numerics {EAGER}"] = WorkerCrashed("killed by signal 11", log=["boom"])
    stand_ins.errors["plan"] = CheckpointError("shard is cut")
    stages = adapt(model, tmp_path / "store", EAGER).targets[0].stages
    assert stages.coverage
    assert stages.minimal
    assert stages.numerics
    assert stages.scale
    assert stages.plan
    assert [f.code for f in stages.coverage.findings] == ["COV900"]
    assert stages.coverage.verdict == "blocked"
    assert stages.minimal.verdict == "pass"
    assert [(f.code, list(f.evidence)) for f in stages.numerics.findings] == [("NUM901", ["boom"])]
    assert stages.numerics.verdict == "fail"
    assert stages.plan.verdict == "blocked"
    assert stages.scale.verdict == "pass"


def test_a_blocked_stage_is_tried_again(stand_ins: StandIns, model: str, tmp_path: Path) -> None:
    stand_ins.errors[f"minimal {EAGER}"] = WorkerCrashed("gone")
    assert adapt(model, tmp_path / "store", EAGER).verdict == "fail"
    stand_ins.errors.clear()
    assert adapt(model, tmp_path / "store", EAGER).verdict == "pass"
    assert stand_ins.computed[f"minimal {EAGER}"] == 2
    assert stand_ins.computed[f"coverage {EAGER}"] == 1


def test_a_target_that_cannot_be_asked_blocks_its_own_stages(
    stand_ins: StandIns, model: str, tmp_path: Path
) -> None:
    stand_ins.errors[f"describe {ONNX}"] = WorkerUnusable("no module named onnxruntime")
    report = adapt(model, tmp_path / "store", EAGER, ONNX)
    assert [str(result.verdict) for result in report.targets] == ["pass", "blocked"]
    assert {f.code for f in report.targets[1].findings} == {"COV904", "MIN904", "NUM904", "SCL904"}


def test_an_unforeseen_error_is_a_finding_with_the_traceback_in_a_log(
    stand_ins: StandIns, model: str, tmp_path: Path
) -> None:
    stand_ins.errors[f"scale {EAGER}"] = ZeroDivisionError("division by zero")
    report = adapt(model, tmp_path / "store", EAGER)
    (finding,) = report.targets[0].findings
    assert finding.code == "SCL908"
    assert "E900" in finding.message
    traceback = Path(finding.evidence[0].removeprefix("traceback in ")).read_text()
    assert "ZeroDivisionError" in traceback


def test_without_an_inventory_there_is_no_run(stand_ins: StandIns, model: str, tmp_path: Path) -> None:
    stand_ins.errors["inventory"] = InputError("nothing to read", code="E103")
    with pytest.raises(InputError, match="nothing to read"):
        adapt(model, tmp_path / "store", EAGER)
    assert set(stand_ins.computed) == {"inventory"}


def test_each_stage_and_the_report_leave_an_artifact(stand_ins: StandIns, model: str, tmp_path: Path) -> None:
    from prefect.client.orchestration import get_client

    report = adapt(model, tmp_path / "store", EAGER)
    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts()
    assert {"inventory", "plan", "coverage-eager-cpu-bf16", "day0-verdict"} <= {
        each.key for each in artifacts
    }
    links = [str(each.data) for each in artifacts if each.key == "day0-report"]
    assert any(report.run in link for link in links)
