"""What shows a gap is the call that failed, not the first one that comes to hand."""

from __future__ import annotations

import pytest
import torch

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.registries.registry import Known
from day0.adapters.registries.row import Constraint, RegistryRow, mark_of
from day0.tasks.coverage.learnt import Setting, extended, new_row
from day0.tasks.coverage.needs import Need
from day0.tasks.coverage.plan_probe import Trial
from day0.tasks.coverage.reference_worker import Asked
from day0.tasks.coverage.replay import Outcome
from day0.tasks.coverage.shown import Shown, shown
from day0.tasks.coverage.shrink import shrink
from day0.tasks.coverage.statuses import State
from day0.tasks.thresholds import PROBE_ELEMENTS
from support.captured import call_of, meta

_aten = torch.ops.aten
_SETTING = Setting(TargetSpec.parse("acme@npu/bf16"), "f" * 32)
_FIRST = call_of(_aten.mm.default, meta(8, 64), meta(64, 160))
_OTHER = call_of(_aten.mm.default, meta(1, 64), meta(64, 160))
_NEED = Need("mm", [_FIRST, _OTHER], 1.0)


def _outcome(check: str, asked: Asked, status: str, reason: str = "error 1") -> Outcome:
    return Outcome(Trial("mm", check, asked), asked.call, status, reason, "library")


def _native() -> RegistryRow:
    return new_row(_outcome("example", Asked(_FIRST, 20, "unit"), "native", ""), _SETTING)


def _state(row: RegistryRow) -> State:
    return State(_NEED, Known(row, "measured"))


def test_a_sound_row_remembers_no_call() -> None:
    assert _native().failing is None


def test_the_call_of_another_shape_that_failed() -> None:
    row = extended(_native(), [_outcome("signatures", Asked(_OTHER, 20, "unit"), "wrong")], _SETTING)
    found = shown(_state(row))
    assert (found.call.signature, found.seed, found.spread) == (_OTHER.signature, 20, "unit")
    assert found.call.module == ""


@pytest.mark.parametrize(("seed", "spread"), [(20, "large"), (21, "unit")])
def test_the_inputs_that_it_failed_with(seed: int, spread: str) -> None:
    row = extended(_native(), [_outcome("ranges", Asked(_FIRST, seed, spread), "wrong")], _SETTING)
    found = shown(_state(RegistryRow.model_validate(row.model_dump(mode="json", exclude_defaults=True))))
    assert (found.call.signature, found.seed, found.spread) == (_FIRST.signature, seed, spread)


def test_the_call_that_a_sound_row_refuses() -> None:
    constraint = Constraint(shapes=_OTHER.shapes, reason="shape: no vectors", mark=mark_of(_OTHER.signature))
    row = _native().model_copy(update={"constraints": [constraint]})
    assert shown(_state(row)) == Shown(_OTHER, 20)


def test_a_row_of_an_earlier_probe_is_known_by_its_digest() -> None:
    tall = call_of(_aten.mm.default, meta(4096, 512), meta(512, 512))
    small = shrink(tall, PROBE_ELEMENTS)
    assert small is not None
    assert small.shapes != tall.shapes
    row = _native().model_copy(update={"status": "wrong", "probe": small.signature})
    state = State(Need("mm", [_FIRST, tall], 1.0), Known(row, "measured"))
    assert shown(state).call.signature == small.signature


@pytest.mark.parametrize(
    ("status", "reason", "any_size"),
    [
        ("missing", "missing_operator: none", True),
        ("missing", "dtype: not for Half", True),
        ("missing", "shape: refused", False),
        ("fallback", "it ran on the host: CAUTION", True),
        ("hang", "it never returned", False),
    ],
)
def test_only_what_shapes_do_not_decide_may_be_made_smaller(status: str, reason: str, any_size: bool) -> None:
    row = new_row(_outcome("example", Asked(_FIRST, 20, "unit"), status, reason), _SETTING)
    assert shown(_state(row)).any_size is any_size
