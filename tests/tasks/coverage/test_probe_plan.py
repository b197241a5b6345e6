"""What is tried of a row, in which order and how much at once, and what becomes of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import RemoteError, WorkerCrashed, WorkerError, WorkerTimeout
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, Call
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Anomaly
from day0.tasks.coverage.learnt import Setting, extended, new_row, own_row, with_refusals
from day0.tasks.coverage.needs import Need
from day0.tasks.coverage.pace import Pace
from day0.tasks.coverage.plan_probe import Trial, composite, example_of, further, others, spreads
from day0.tasks.coverage.reference_worker import Asked
from day0.tasks.coverage.replay import Outcome, judge
from day0.tasks.coverage.sweep import neighbours
from day0.tasks.coverage.variation import varied
from day0.tasks.operator_reference import compute_reference
from support.captured import call_of, meta

aten = torch.ops.aten
SPEC = TargetSpec.parse("eager@npu/bf16")
SETTING = Setting(SPEC, "f" * 32, "2026-11-30")
MM = call_of(aten.mm.default, meta(2, 3), meta(3, 4))

_HEADS = {"dtype": "fp32", "shape": [1, 2, 3, 4], "stride": [24, 12, 4, 1]}
ATTENTION = OperatorCall(
    op="aten.scaled_dot_product_attention.default",
    args=[{"tensor": {**_HEADS, "alias": alias}} for alias in range(3)],
    dtypes=["fp32"] * 3,
    shapes=[[1, 2, 3, 4]] * 3,
)


def _need(*calls: OperatorCall) -> Need:
    return Need(calls[0].row_key, calls, 1.0)


def _trial(call: OperatorCall, check: str = "example", **fields: Any) -> Trial:
    return Trial(call.row_key, check, Asked(call, 20, fields.pop("spread", "unit")), **fields)


def _outcome(call: OperatorCall, status: str, check: str = "example", **fields: Any) -> Outcome:
    named = {name: fields.pop(name) for name in ("attribute", "value", "spread") if name in fields}
    return Outcome(_trial(call, check, **named), call, status, **fields)


def _changed(call: OperatorCall) -> dict[str, Any]:
    return {one.attribute: one.value for one in varied(call)}


def test_each_attribute_is_changed_in_turn() -> None:
    softmax = call_of(aten._softmax.default, meta(2, 3, dtype=torch.bfloat16), -1, False)
    assert _changed(softmax) == {"dim": 0, "half_to_float": True}
    assert _changed(call_of(aten._softmax.default, meta(2, 3), -1, False)) == {"dim": 0}
    assert _changed(call_of(aten.gelu.default, meta(2))) == {"approximate": "tanh"}
    assert _changed(call_of(aten.add.Tensor, meta(2), meta(2))) == {"alpha": 0}
    norm = call_of(aten.native_layer_norm.default, meta(2, 4), [4], meta(4), meta(4), 1e-5)
    assert _changed(norm) == {"eps": pytest.approx(0.250015)}
    assert _changed(MM) == {}
    assert _changed(ATTENTION) == {"is_causal": True, "scale": 0.75, "enable_gqa": True}


def test_what_torch_itself_refuses_is_not_asked_of_a_target() -> None:
    mask = {"dtype": "fp32", "shape": [1, 1, 3, 3], "stride": [9, 9, 3, 1], "alias": 3}
    masked = ATTENTION.model_copy(
        update={
            "args": [*ATTENTION.args, {"tensor": mask}],
            "dtypes": ["fp32"] * 4,
            "shapes": [*ATTENTION.shapes, [1, 1, 3, 3]],
        }
    )
    assert _changed(masked) == {"scale": 0.75, "enable_gqa": True}  # not with is_causal, as torch says
    assert _changed(call_of(aten.topk.default, meta(4, 4), 4)) == {
        "k": 3,
        "dim": 0,
        "largest": False,
        "sorted": False,
    }


def test_a_changed_switch_is_another_row_and_a_changed_number_is_not() -> None:
    by_name = {one.attribute: one.call for one in varied(ATTENTION)}
    assert by_name["is_causal"].variant == "is_causal"
    assert by_name["is_causal"].row_key != ATTENTION.row_key
    add = call_of(aten.add.Tensor, meta(2), meta(2))
    assert {one.call.row_key for one in varied(add)} == {add.row_key}


def test_the_largest_and_the_most_different_calls_are_tried_too() -> None:
    example = call_of(aten.mm.default, meta(8, 8), meta(8, 512))
    large = call_of(aten.mm.default, meta(8, 64), meta(64, 64))
    ragged = call_of(aten.mm.default, meta(1, 7), meta(3, 7).t())
    near = call_of(aten.mm.default, meta(8, 16), meta(16, 16))
    need = _need(near, large, ragged, example)
    assert example_of(need).asked.call == example
    assert others(need) == [large, ragged]
    checks = [trial.check for trial in further(need, example)]
    assert checks == ["signatures", "signatures", "ranges"]


def test_ranges_are_for_functions_of_single_values() -> None:
    assert spreads(call_of(aten.exp.default, meta(2))) == ("wide", "large", "odd")
    assert spreads(call_of(aten.mm.default, meta(2, 2), meta(2, 2))) == ()
    assert spreads(call_of(aten.exp.default, meta(2, dtype=torch.int64))) == ()
    assert spreads(ATTENTION) == ("wide",)


def test_composites_say_least() -> None:
    assert composite(ATTENTION)
    assert not composite(MM)


def test_neighbours_are_other_dtypes_and_ranks() -> None:
    silu = call_of(aten.silu.default, meta(1, 4, dtype=torch.bfloat16))
    keys = {need.key.split("|", 1)[1] for need in neighbours([_need(silu)], ["bf16", "fp32", "int8"])}
    assert keys == {"fp32|2", "bf16|1", "bf16|3"}
    assert {need.key for need in neighbours([_need(MM)], ["fp32"])} == set()


def _answer(*outputs: torch.Tensor, seconds: float = 0.001, anomalies: Any = ()) -> Answer:
    tree = [{"$tensor": str(place)} for place, _ in enumerate(outputs)]
    return Answer(Call(tree, {str(at): one for at, one in enumerate(outputs)}), seconds, 0, {}, anomalies)


def test_answers_become_statuses() -> None:
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    reference = compute_reference(MM.model_dump(mode="json"), [left, right])
    fell = Anomaly(code="cpu_fallback", subject="aten.mm.default", message="on the host", evidence="words")
    answers: dict[str, Answer | WorkerError] = {
        "native": _answer(left @ right),
        "wrong": _answer(left @ right * 1.01),
        "fallback": _answer(left @ right, anomalies=[fell]),
        "missing": RemoteError("Could not run 'aten::mm'", kind="missing_operator", type_name="X"),
        "double_fault": RemoteError("fell back", kind="double_fault", type_name="X"),
        "crash": WorkerCrashed("died by signal 11", log=["a", "Segmentation fault"]),
        "hang": WorkerTimeout("no answer in 60 s"),
        "unknown": RemoteError("out of memory", kind="memory", type_name="X"),
    }
    found = {status: judge(SPEC, _trial(MM), MM, reference, answer) for status, answer in answers.items()}
    assert {status: outcome.status for status, outcome in found.items()} == {name: name for name in answers}
    assert found["missing"].layer == "adapter"
    assert "Segmentation fault" in found["crash"].log
    assert found["fallback"].reason == "it ran on the host: words"


def test_a_refused_shape_constrains_a_row_that_runs() -> None:
    row = new_row(_outcome(MM, "native"), SETTING)
    assert (list(row.tried), row.date, row.status) == ([MM.signature[:12]], "2026-11-30", "native")
    other = call_of(aten.mm.default, meta(0, 3), meta(3, 4))
    refused = _outcome(other, "missing", "signatures", kind="shape", reason="shape: empty")
    for changed in (with_refusals(row, [refused]), extended(row, [refused], SETTING)):
        assert changed.status == "native"
        refusal = changed.refusal([other.signature])
        assert refusal is not None
        assert (refusal.shapes, refusal.reason) == ([[0, 3], [3, 4]], "shape: empty")
        assert changed.refusal([MM.signature]) is None


def test_further_outcomes_speak_against_a_row_or_constrain_it() -> None:
    exp = call_of(aten.exp.default, meta(2))
    row = new_row(_outcome(exp, "native", error=1e-7, tolerance=2e-5), SETTING)
    clamped = _outcome(exp, "wrong", "ranges", spread="large", reason="3 of 8 values")
    odd = _outcome(exp, "wrong", "ranges", spread="odd", reason="NaN")
    assert extended(row, [clamped], SETTING).status == "wrong"
    constrained = extended(row, [odd], SETTING)
    assert (constrained.status, [one.reason for one in constrained.constraints]) == ("native", ["wrong: NaN"])
    worse = extended(row, [_outcome(exp, "native", "ranges", error=1e-6, tolerance=2e-5)], SETTING)
    assert worse.error == 1e-6


def test_an_attribute_without_effect_is_wrong_where_it_is_of_the_same_row() -> None:
    add = call_of(aten.add.Tensor, meta(2), meta(2))
    (change,) = [one for one in varied(add) if one.value == 0][:1]
    row = new_row(_outcome(add, "native"), SETTING)
    ignored = _outcome(
        change.call, "wrong", "attributes", attribute="alpha", value=0, reason="alpha has no effect: error 1"
    )
    heeded = _outcome(change.call, "wrong", "attributes", attribute="alpha", value=0, reason="error 1")
    assert extended(row, [ignored], SETTING).status == "wrong"
    assert extended(row, [heeded], SETTING).status == "native"
    assert own_row(ignored, row, SETTING) is None


def test_a_switch_that_is_refused_is_a_row_of_its_own() -> None:
    row = new_row(_outcome(ATTENTION, "native"), SETTING)
    causal = next(one for one in varied(ATTENTION) if one.attribute == "is_causal")
    refused = _outcome(
        causal.call,
        "missing",
        "attributes",
        attribute="is_causal",
        value=True,
        kind="unsupported",
        reason="no",
    )
    assert extended(row, [refused], SETTING).status == "native"
    own = own_row(refused, row, SETTING)
    assert own is not None
    assert (own.variant, own.status) == ("is_causal", "missing")


def test_the_pace_never_begins_what_does_not_fit() -> None:
    pace = Pace(1000.0)
    sizes = []
    for _ in range(6):
        sizes.append(pace.size)
        with pace.timing(pace.size):
            pass
    assert sizes == [8, 8, 16, 32, 32, 32]
    short = Pace(0.2)
    for _ in range(2):
        with short.timing(1):
            time.sleep(0.06)
    assert short.size == 1
    time.sleep(0.1)
    assert short.spent
    stopped = Pace(1000.0)
    stopped.stop()
    assert stopped.spent
