"""What is told of two comparisons: the first node that changed, how far, and every part beside the nodes."""

from __future__ import annotations

from typing import Any

import pytest

from day0.reports.diff import diff_reports
from day0.reports.metric_change import beyond_band
from day0.reports.numerics_diff import numerics_changes
from day0.reports.regression import judge_regression
from day0.reports.signatures import Moves
from day0.tasks.numerics.record import Logits, NumericsRecord, PromptResult
from day0.tasks.numerics.record_parts import Manifest, ReferenceCheck, SelfTest, TaskMetric
from day0.tasks.verdict import Verdict
from support.sample_numerics import (
    metrics,
    optional_parts,
    sample_numerics,
    sample_precision,
    sample_prompts,
    sample_routing,
    sample_self_test,
    sample_task,
    sample_training,
)
from support.sample_records import ORT
from support.sample_report import sample_report


def told(
    before: NumericsRecord,
    after: NumericsRecord,
    moves: dict[str, float] | None = None,
    alike: int | None = None,
) -> list[str]:
    known = None if moves is None else Moves(moves, alike)
    return [change.text.removeprefix(f"{ORT}: ") for change in numerics_changes(ORT, before, after, known)]


def record(**facts: Any) -> NumericsRecord:
    parts = {**optional_parts(), "routing": sample_routing(4)}
    return sample_numerics(ORT, layers=4, **{**parts, **facts})


def with_blocks(base: NumericsRecord, **changed: dict[str, Any]) -> NumericsRecord:
    """The record with some nodes changed, by the last part of their names."""
    blocks = [
        block.model_copy(update=changed.get(f"n{block.name.rsplit('.', 1)[-1]}", {}))
        for block in base.facts.blocks
    ]
    return base.model_copy(update={"facts": base.facts.model_copy(update={"blocks": blocks})})


def test_equal_records_say_nothing() -> None:
    assert told(record(), record()) == []


# --- the first node that changed ----------------------------------------------------------------------------


def test_the_first_node_that_changed_is_named_with_its_distance() -> None:
    after = with_blocks(record(), n1={"signature": "x"}, n2={"signature": "y"}, n3={"signature": "z"})
    moves = {"model.layers.1": 3.14e-3, "model.layers.2": 0.2}
    assert told(record(), after, moves) == [
        "first node that changed: model.layers.1, moved by 0.00314, run-to-run band 0 "
        "(and then model.layers.2 and model.layers.3)"
    ]


def test_where_the_tokens_differ_a_digest_proves_nothing() -> None:
    after = with_blocks(record(), n1={"signature": "x"}, n2={"signature": "y"}, n3={"signature": "z"})
    moves = {"model.layers.1": 0.0, "model.layers.2": 0.2}
    assert told(record(), after, moves, 11) == [
        "first node that changed: model.layers.2, moved by 0.200 by the 11 tokens that both runs begin with, "
        "run-to-run band 0"
    ]
    assert told(record(), after, dict.fromkeys(moves, 0.0), 11) == []


def test_without_signatures_the_digest_alone_speaks() -> None:
    after = with_blocks(record(), n1={"signature": "x"})
    assert told(record(), after) == ["first node that changed: model.layers.1, run-to-run band 0"]
    once = {"bit_stable": None, "band": "NaN"}
    assert told(with_blocks(record(), n1=once), with_blocks(record(), n1={**once, "signature": "x"})) == [
        "first node that changed: model.layers.1"
    ]


@pytest.mark.parametrize(
    ("distance", "named"), [(1e-4, False), (2.9e-3, False), (3.1e-3, True), (None, False)]
)
def test_a_node_that_differs_from_run_to_run_changed_beyond_its_band(
    distance: float | None, named: bool
) -> None:
    """The band is 1e-3; three times of it is where a change begins."""
    loose = {"bit_stable": False, "band": 1e-3}
    before = with_blocks(record(), n1=loose)
    after = with_blocks(record(), n1={**loose, "signature": "x", "local": metrics(9.0, 9.0, 1.0)})
    moves = {} if distance is None else {"model.layers.1": distance}
    found = told(before, after, moves)
    assert any("first node that changed: model.layers.1" in text for text in found) is named
    assert any("model.layers.1 rel_l2" in text for text in found) is named
    if named:
        assert "run-to-run band 1.00e-3" in found[-1] or "run-to-run band 0.00100" in found[-1]


def test_another_shape_is_told_as_such() -> None:
    after = with_blocks(record(), n1={"signature": "x"})
    assert "its output has another shape" in told(record(), after, {"model.layers.1": float("inf")})[0]


# --- the other parts ----------------------------------------------------------------------------------------


def test_a_reference_that_is_found_wrong_fails() -> None:
    after = record(reference_check=ReferenceCheck(state="fail"))
    change = next(iter(numerics_changes(ORT, record(), after)))
    assert (change.subject, change.before, change.after) == ("reference check", "pass", "fail")
    assert change.fails
    assert change.worse
    back = next(iter(numerics_changes(ORT, after, record())))
    assert (back.fails, back.worse) == (False, False)


def test_prompts_are_compared_one_by_one() -> None:
    logits = record().facts.logits
    assert logits is not None
    prompts = sample_prompts(worst="lm_head")[:3]
    prompts[1] = prompts[1].model_copy(update={"kl": 0.3, "worst_block": ""})
    prompts[2] = prompts[2].model_copy(update={"reason": "no memory", "tokens": 0, "worst_block": ""})
    after = record(logits=logits.model_copy(update={"prompts": prompts}))
    assert told(record(), after) == [
        "logits texts worst node none -> lm_head",
        "logits long kl 0.00290 -> 0.300",
        "logits padded does not run any more: no memory",
        "prompt shifted is gone",
    ]
    assert [c.fails for c in numerics_changes(ORT, record(), after)] == [True, False, False, False]


def test_decode_that_is_gone_is_told() -> None:
    assert told(record(), record(decode=None)) == ["agreement at the output with a cache is gone"]
    logits = record().facts.logits
    assert logits is not None
    left_out = PromptResult(name="decode", reason="not asked for")
    after = record(decode=None, logits=logits.model_copy(update={"prompts": [*logits.prompts, left_out]}))
    assert told(record(), after) == ["prompt decode is new"]
    worse = Logits(top1=0.5, top5=0.968, kl=3.3e-3, decisive=2, positions=8)
    assert told(record(), record(decode=worse)) == ["decode top1 0.981 -> 0.500", "decode decisive 0 -> 2"]


def test_shares_of_a_target_that_differs_from_run_to_run_wander() -> None:
    loose = {"bit_stable": False, "band": 1e-3}
    near = Logits(top1=0.97, top5=0.95, kl=3.5e-3, decisive=1, positions=8)
    far = near.model_copy(update={"kl": 0.5})
    before = with_blocks(record(), n1=loose)
    assert told(before, with_blocks(record(decode=near), n1=loose)) == []
    assert "decode kl 0.00330 -> 0.500" in told(before, with_blocks(record(decode=far), n1=loose))


def test_unexplained_flips_are_told_and_near_ties_are_not() -> None:
    routers = sample_routing(4)
    routers[0] = routers[0].model_copy(update={"flips": 9, "near_tie": 9})
    assert told(record(), record(routing=routers)) == []
    assert told(record(), record(routing=sample_routing(4, unexplained=5))) == [
        "model.layers.2 unexplained flips 0 -> 5"
    ]


def test_a_bug_that_is_no_longer_found_fails() -> None:
    test = sample_self_test()
    matrix = [
        bug.model_copy(update={"detected": False}) if bug.bug == "rope_pairing" else bug
        for bug in test.matrix
    ]
    changes = list(numerics_changes(ORT, record(), record(self_test=SelfTest(matrix=matrix, observer=False))))
    assert [(c.text.removeprefix(f"{ORT}: "), c.fails) for c in changes] == [
        ("bug rope_pairing found -> missed", True),
        ("capturing harmless -> changes the result", True),
    ]


def test_policy_training_task_and_capture() -> None:
    precision = sample_precision().model_copy(
        update={"policy": {"attention": "bf16", "dense_mlp": "fp8_e4m3"}}
    )
    after = record(
        precision=precision,
        training=sample_training(wrong="lm_head"),
        task=sample_task().model_copy(update={"target": 0.6}),
        manifest=Manifest(expected=98, seen=90),
    )
    assert told(record(), after) == [
        "calls not captured 0 -> 8",
        "task choices target 0.705 -> 0.600",
        "precision of attention int8 -> bf16",
        "precision of router bf16 -> none",
        "training lm_head pass -> fail",
    ]


def test_what_one_run_was_not_asked_for_is_no_regression() -> None:
    bare = record(task=None, self_test=None, precision=None, training=None)
    changes = list(numerics_changes(ORT, record(), bare))
    assert {change.kind for change in changes} == {"fact"}
    assert len(changes) == 4
    assert told(record(), record(task=TaskMetric(name="other", items=200)))[0].startswith(
        "the task is another"
    )


# --- as a whole ---------------------------------------------------------------------------------------------


def test_a_regression_names_the_node_its_move_and_the_band() -> None:
    before = sample_report(bad=None)
    record = before.targets[0].stages.numerics
    assert record is not None
    stages = before.targets[0].stages.model_copy(
        update={"numerics": with_blocks(record, n3={"signature": "f" * 32})}
    )
    targets = [before.targets[0].model_copy(update={"stages": stages}), before.targets[1]]
    after = before.model_copy(update={"targets": targets})
    judged = judge_regression(before, after)
    assert judged.verdict is Verdict.FAIL
    assert "first node that changed: model.layers.3, run-to-run band 0" in judged.headline
    assert len(diff_reports(before, after).changes) == 1


def test_a_run_that_was_asked_for_fewer_prompts_is_held_to_another_method() -> None:
    """Other prompts are rounded together otherwise, so another last bit of a node is no regression."""
    before = sample_report(bad=None)
    record = before.targets[0].stages.numerics
    assert record is not None
    assert record.facts.logits is not None
    prompts = [*record.facts.logits.prompts]
    prompts[-1] = PromptResult(name=prompts[-1].name, reason="not asked for")
    logits = record.facts.logits.model_copy(update={"prompts": prompts})
    changed = with_blocks(record, n3={"signature": "f" * 32})
    changed = changed.model_copy(update={"facts": changed.facts.model_copy(update={"logits": logits})})
    stages = before.targets[0].stages.model_copy(update={"numerics": changed})
    after = before.model_copy(
        update={"targets": [before.targets[0].model_copy(update={"stages": stages}), before.targets[1]]}
    )
    judged = judge_regression(before, after)
    assert judged.verdict is not Verdict.FAIL
    assert any("first node that changed: model.layers.3" in one.change.text for one in judged.changes)


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [(1.0, 1.4, False), (1.0, 1.6, True), (0.0, 0.1, True), ("NaN", "NaN", False), (1.0, "NaN", True)],
)
def test_band(before: Any, after: Any, moved: bool) -> None:
    assert beyond_band(before, after) is moved
