from __future__ import annotations

from collections.abc import Callable
from typing import Any

from day0.adapters.base.values import Fingerprint
from day0.reports.diff import diff_lines, diff_reports
from day0.reports.facts_diff import differences
from day0.reports.model import Report
from day0.reports.page.build import build_page, unsourced_blocks
from day0.reports.regression import judge_regression
from day0.tasks.job import StageJob
from day0.tasks.numerics.record import Block, NumericsFacts
from day0.tasks.prevented import prevented_record
from day0.tasks.prevention import Prevention
from day0.tasks.verdict import Verdict
from support.sample_records import BAD_LAYER, EAGER, ORT
from support.sample_report import sample_report


def with_numerics(
    report: Report, change: Callable[[NumericsFacts], NumericsFacts], target: int = 0
) -> Report:
    result = report.targets[target]
    record = result.stages.numerics
    assert record is not None
    stages = result.stages.model_copy(
        update={"numerics": record.model_copy(update={"facts": change(record.facts)})}
    )
    targets = list(report.targets)
    targets[target] = result.model_copy(update={"stages": stages})
    return report.model_copy(update={"targets": targets})


def one_block(name: str, **changes: Any) -> Callable[[NumericsFacts], NumericsFacts]:
    def change(facts: NumericsFacts) -> NumericsFacts:
        blocks = [block.model_copy(update=changes) if block.name == name else block for block in facts.blocks]
        return facts.model_copy(update={"blocks": blocks})

    return change


def with_stack(report: Report, version: str, target: int = 0) -> Report:
    """The same report, as if the stack had another version."""
    fingerprint = Fingerprint(family="eager x86_64 avx512", exact={"torch": version})
    result = report.targets[target]
    stages = {}
    for stage in ("coverage", "minimal", "numerics", "scale"):
        record = getattr(result.stages, stage)
        facts = record.facts.model_copy(update={"fingerprint": fingerprint})
        stages[stage] = record.model_copy(update={"facts": facts})
    targets = list(report.targets)
    targets[target] = result.model_copy(update={"stages": result.stages.model_copy(update=stages)})
    return report.model_copy(update={"targets": targets})


def test_equal_reports_have_no_diff() -> None:
    found = diff_reports(sample_report(), sample_report())
    assert found.changes == ()
    assert diff_lines(found)[0].endswith("say the same.")
    judged = judge_regression(sample_report(), sample_report())
    assert (judged.verdict, judged.headline) == (Verdict.PASS, "No change since the baseline.")


def test_a_layer_that_breaks_is_a_regression_and_named() -> None:
    judged = judge_regression(sample_report(bad=None), sample_report())
    assert judged.regression
    red = [item for item in judged.changes if item.regression]
    assert any(item.change.subject == f"model.layers.{BAD_LAYER}" for item in red)
    assert all(item.change.target in (ORT, "") for item in red)
    assert judge_regression(sample_report(), sample_report(bad=None)).changes[0].change.worse is not True


def test_behaviour_that_changed_under_the_same_fingerprint_is_its_own_class() -> None:
    before = sample_report(bad=None)
    after = with_numerics(before, one_block("model.layers.3", signature="f" * 32))
    judged = judge_regression(before, after)
    assert judged.verdict is Verdict.FAIL
    assert [(item.category, item.change.subject) for item in judged.changes] == [
        ("behaviour", "model.layers.3")
    ]
    assert "under an unchanged fingerprint" in judged.headline


def test_the_same_change_with_another_stack_is_explained() -> None:
    before = sample_report(bad=None)
    after = with_stack(with_numerics(before, one_block("model.layers.3", signature="f" * 32)), "2.14.0")
    judged = judge_regression(before, after)
    assert judged.verdict is Verdict.PASS
    assert {item.category for item in judged.changes} == {"stack_version", "node"}
    assert "stack version" in judged.headline


def test_a_new_stack_that_breaks_a_node_is_still_a_regression() -> None:
    before = sample_report(bad=None)
    after = with_stack(sample_report(bad=BAD_LAYER), "2.14.0", target=1)
    judged = judge_regression(before, after)
    assert judged.regression
    assert any(item.category == "stack_version" for item in judged.changes)


def test_another_revision_of_the_model_is_named() -> None:
    before = sample_report(bad=None)
    identity = before.inventory.facts.identity.model_copy(
        update={"revision": "b" * 40, "weights_digest": "w2"}
    )
    facts = before.inventory.facts.model_copy(update={"identity": identity})
    after = before.model_copy(update={"inventory": before.inventory.model_copy(update={"facts": facts})})
    after = with_numerics(after, one_block("model.layers.3", signature="f" * 32))
    judged = judge_regression(before, after)
    assert judged.verdict is Verdict.PASS
    assert "model_revision" in {item.category for item in judged.changes}
    assert "behaviour" not in {item.category for item in judged.changes}


def test_another_reference_explains_other_numbers() -> None:
    before = sample_report(bad=None)

    def change(facts: NumericsFacts) -> NumericsFacts:
        moved = one_block("model.layers.3", signature="f" * 32)(facts)
        return moved.model_copy(update={"reference": "transformers 6.0.0 eager cpu fp32"})

    judged = judge_regression(before, with_numerics(before, change))
    assert judged.verdict is Verdict.PASS
    assert "reference_version" in {item.category for item in judged.changes}


def test_a_target_without_baseline_is_undecided() -> None:
    report = sample_report(bad=None)
    alone = report.model_copy(update={"targets": report.targets[:1]})
    assert judge_regression(alone, report).verdict is Verdict.UNVERIFIED
    assert judge_regression(report, alone).verdict is Verdict.UNVERIFIED


def test_metrics_are_told_beyond_the_band_only() -> None:
    before = with_stack(sample_report(bad=None), "2.14.0")
    metrics = next(block for block in _blocks(before) if block.name == "model.layers.5").local
    assert metrics is not None
    old = float(metrics.rel_l2)

    def after(factor: float) -> Report:
        moved = metrics.model_copy(update={"rel_l2": old * factor})
        return with_numerics(before, one_block("model.layers.5", local=moved))

    assert diff_reports(before, after(1.2)).changes == ()
    changes = diff_reports(before, after(2.0)).changes
    assert [(change.kind, change.subject, change.worse) for change in changes] == [
        ("metric", "model.layers.5 rel_l2", True)
    ]
    assert diff_reports(before, after(0.1)).changes[0].worse is False


def _blocks(report: Report) -> list[Block]:
    record = report.targets[0].stages.numerics
    assert record is not None
    return list(record.facts.blocks)


def test_entries_of_lists_are_matched_by_name() -> None:
    before = {"ops": [{"op": "a", "dtypes": ["bf16"], "n": 1}, {"op": "b", "dtypes": ["bf16"], "n": 2}]}
    after = {"ops": [{"op": "b", "dtypes": ["bf16"], "n": 3}]}
    assert [(d.pointer, d.subject, d.before, d.after) for d in differences(before, after)] == [
        ("/ops/0", "a bf16", {"op": "a", "dtypes": ["bf16"], "n": 1}, None),
        ("/ops/0/n", "b bf16", 2, 3),
    ]


def test_a_fact_that_differs_is_told_by_pointer() -> None:
    before = sample_report(bad=None)
    facts = before.inventory.facts.model_copy(update={"kv_bytes_per_token": 46_080})
    after = before.model_copy(update={"inventory": before.inventory.model_copy(update={"facts": facts})})
    changes = diff_reports(before, after).changes
    assert [(c.kind, c.stage, c.subject, c.before, c.after) for c in changes] == [
        ("fact", "inventory", "/kv_bytes_per_token", 23_040, 46_080)
    ]
    assert diff_lines(diff_reports(before, after)) == ["~ inventory /kv_bytes_per_token: 23040 -> 46080"]


def test_targets_that_come_and_go_are_told() -> None:
    report = sample_report()
    alone = report.model_copy(update={"targets": report.targets[:1]})
    kinds = [change.kind for change in diff_reports(report, alone).changes]
    assert kinds == ["verdict", "target"]
    assert diff_reports(alone, report).changes[-1].text == f"target {ORT} is new"
    assert alone.targets[0].target == EAGER


def test_a_target_that_cannot_start_any_more_is_undecided() -> None:
    before = sample_report(bad=None)
    job = StageJob(run="r", store="s", model="m", target=EAGER)
    why = Prevention(number=904, about="target", message="torch cannot be imported")
    prevented = {
        stage: prevented_record(stage, job, why) for stage in ("coverage", "minimal", "numerics", "scale")
    }
    stages = before.targets[0].stages.model_copy(update=prevented)
    findings = [finding for record in prevented.values() for finding in record.findings]
    changed = {"stages": stages, "findings": findings, "verdict": Verdict.BLOCKED}
    after = before.model_copy(
        update={"targets": [before.targets[0].model_copy(update=changed), before.targets[1]]}
    )
    judged = judge_regression(before, after)
    assert judged.verdict is Verdict.UNVERIFIED
    assert "stack_version" not in {item.category for item in judged.changes}
    assert "Could not be decided" in judged.headline
    page = build_page(after)
    assert unsourced_blocks(page) == []
    assert page.sections[3].blocks[0].lead == "Torch cannot be imported."
