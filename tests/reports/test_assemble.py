from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from day0.reports.as_json import as_json
from day0.reports.assemble import assemble
from day0.reports.model import Report, Stages
from day0.tasks.finding import Subject, Waiver, make_finding
from day0.tasks.verdict import Verdict
from support.sample_numerics import sample_numerics
from support.sample_records import BAD_LAYER, EAGER, MODEL, ORT, any_code, sample_coverage, sample_inventory
from support.sample_report import sample_minimal, sample_plan, sample_report, sample_scale


def one_target(stages: Stages, **changes: object) -> Report:
    return assemble("r", MODEL, sample_inventory(), {EAGER: stages}, **changes)  # type: ignore[arg-type]  # by name


def whole_stages() -> Stages:
    return Stages(
        coverage=sample_coverage(EAGER, gaps=False),
        minimal=sample_minimal(EAGER),
        numerics=sample_numerics(EAGER),
        plan=sample_plan(),
        scale=sample_scale(EAGER, blocked=False),
    )


def answers(report: Report, target: int = 0) -> dict[str, str]:
    return {question.id: question.answer for question in report.targets[target].questions}


def test_the_whole_is_the_worst_of_its_parts() -> None:
    report = sample_report()
    assert [result.verdict for result in report.targets] == [Verdict.PASS, Verdict.FAIL]
    assert report.verdict is Verdict.FAIL
    assert sample_report(bad=None).verdict is Verdict.PASS


def test_a_stage_that_left_no_record_is_unverified() -> None:
    report = one_target(Stages(coverage=sample_coverage(EAGER, gaps=False)))
    assert report.verdict is Verdict.UNVERIFIED
    assert answers(report) == {"weights": "unverified", "graph": "unverified", "results": "unverified"}


def test_questions_name_the_faulty_node_and_its_numbers() -> None:
    report = sample_report()
    assert answers(report, 0) == {"weights": "yes", "graph": "yes", "results": "yes"}
    assert answers(report, 1) == {"weights": "yes", "graph": "yes", "results": "no"}
    told = report.targets[1].questions[2].evidence
    assert f"model.layers.{BAD_LAYER}" in told
    assert "61.4" in told
    assert "12" in told


@pytest.mark.parametrize(
    ("load", "answer"),
    [
        ({"outcome": "loaded", "missing": ["model.norm.weight"]}, "no"),
        ({"outcome": "loaded", "unexpected": ["extra"]}, "partly"),
        ({"outcome": "memory", "detail": "out of memory"}, "no"),
    ],
)
def test_weights_question_follows_the_loader(load: dict[str, object], answer: str) -> None:
    minimal = sample_minimal(EAGER)
    assert minimal.facts.load is not None
    changed = minimal.facts.load.model_copy(update=load)
    facts = minimal.facts.model_copy(update={"load": changed})
    stages = whole_stages().model_copy(update={"minimal": minimal.model_copy(update={"facts": facts})})
    assert answers(one_target(stages))["weights"] == answer


def test_weights_do_not_load_from_a_broken_release() -> None:
    broken = make_finding(any_code("INV", "error"), Subject(kind="file", name="a"), "a ends early")
    inventory = sample_inventory().model_copy(update={"findings": (broken,), "verdict": Verdict.FAIL})
    report = assemble("r", MODEL, inventory, {EAGER: whole_stages()})
    question = report.targets[0].questions[0]
    assert (question.answer, question.evidence) == ("no", "A ends early.")


@pytest.mark.parametrize(("outcome", "answer"), [("missing_operator", "no"), ("not_run", "partly")])
def test_graph_question_follows_the_nodes(outcome: str, answer: str) -> None:
    minimal = sample_minimal(EAGER)
    nodes = list(minimal.facts.nodes)
    nodes[1] = nodes[1].model_copy(update={"outcome": outcome, "detail": "no kernel for aten.foo"})
    facts = minimal.facts.model_copy(update={"nodes": nodes})
    stages = whole_stages().model_copy(update={"minimal": minimal.model_copy(update={"facts": facts})})
    question = one_target(stages).targets[0].questions[1]
    assert question.answer == answer
    assert "model.layers.0" in question.evidence


def test_a_waiver_holds_until_its_last_day() -> None:
    finding = sample_report().targets[1].findings[1]
    waiver = Waiver(finding=finding.id, owner="mira", reason="known", expires=date(2026, 11, 30))
    stages = Stages(
        coverage=sample_coverage(ORT, gaps=False),
        minimal=sample_minimal(ORT),
        numerics=sample_numerics(ORT, bad=BAD_LAYER),
        plan=sample_plan(),
        scale=sample_scale(ORT, blocked=False),
    )

    def verdict(day: int, month: int = 11) -> Verdict:
        moment = datetime(2026, month, day, tzinfo=UTC)
        targets = {ORT: stages}
        return assemble("r", MODEL, sample_inventory(), targets, waivers=[waiver], created=moment).verdict

    assert verdict(30) is Verdict.WARN
    assert verdict(1, 12) is Verdict.FAIL


def test_json_of_one_target_has_its_stages_at_the_top() -> None:
    shape = as_json(one_target(whole_stages()))
    assert shape["verdict"] == "pass"
    assert shape["inventory"]["totals"]["logical_params"] == 134_515_008
    assert shape["inventory"]["verdict"] == "pass"
    assert shape["stages"] == shape["targets"][0]["stages"]
    assert list(shape["stages"]) == ["coverage", "minimal", "numerics", "plan", "scale"]
    assert shape["stages"]["numerics"]["blocks"][0]["name"] == "model.embed_tokens"
    assert [finding["code"] for finding in shape["findings"]] == [any_code("INV", "info")]
    two = as_json(sample_report())
    assert "stages" not in two
    assert two["targets"][1]["verdict"] == "fail"


def test_json_tells_of_a_stage_that_did_not_run() -> None:
    shape = as_json(one_target(Stages()))
    assert shape["stages"]["scale"] == {"verdict": "unverified", "findings": [], "ran": False}
