from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.flows.baseline import accept_run
from day0.tasks.job import StageJob
from day0.tasks.numerics.record import Block, Metrics, NumericsRecord
from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict
from support.stand_in_stages import StandIns, empty_record

EAGER = "eager@cpu/bf16"

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return str(tmp_path / "model")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> StandIns:
    made = StandIns()
    monkeypatch.setattr("day0.flows.stage_runs.stage_function", made.stage_function)
    monkeypatch.setattr("day0.flows.adapt.describe_target", made.describe)
    return made


def numerics(signature: str) -> StageRecord:
    record = empty_record("numerics", StageJob(run="r", store="s", model="m", target=EAGER))
    assert isinstance(record, NumericsRecord)
    metrics = Metrics(rel_l2=1e-3, cosine=1, max_abs=0, worst_token=0, gain=0, gain_score=1, ratio=1)
    block = Block(
        name="model.layers.7",
        role="layer",
        local=metrics,
        propagated=metrics,
        growth=1,
        verdict="pass",
        signature=signature,
    )
    return record.model_copy(update={"facts": record.facts.model_copy(update={"blocks": (block,)})})


def test_without_a_baseline_nothing_can_be_decided(stand_ins: StandIns, model: str, tmp_path: Path) -> None:
    from day0.flows.regress import judgement_lines, regress

    outcome = regress(model, [EAGER], store=str(tmp_path / "store"))
    assert outcome.verdict is Verdict.UNVERIFIED
    assert "day0 baseline accept" in judgement_lines(outcome.targets[0])[0]


def test_whatever_touches_the_target_runs_again_and_changes_are_named(
    stand_ins: StandIns, model: str, tmp_path: Path
) -> None:
    from day0.flows.adapt import adapt
    from day0.flows.regress import regress

    store = tmp_path / "store"
    stand_ins.records[f"numerics {EAGER}"] = numerics("aaaa")
    run = adapt(model, [EAGER], store=str(store))
    accept_run(RunStore(store), run)

    before = dict(stand_ins.computed)
    same = regress(model, [EAGER], store=str(store))
    assert same.verdict is Verdict.PASS
    again = {name for name, count in stand_ins.computed.items() if count > before[name]}
    assert again == {f"{stage} {EAGER}" for stage in ("coverage", "minimal", "numerics", "scale")}

    stand_ins.records[f"numerics {EAGER}"] = numerics("bbbb")
    state = regress(model, [EAGER], store=str(store), return_state=True)
    assert state.name == "Regression"
    outcome = state.result()
    assert outcome.verdict is Verdict.FAIL
    (judgement,) = outcome.targets
    assert judgement.baseline == run
    assert judgement.regression is not None
    assert "under an unchanged fingerprint" in judgement.regression.headline
    assert "model.layers.7" in judgement.regression.headline
    assert (store / "runs" / outcome.run / "regression.json").exists()
