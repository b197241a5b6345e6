"""Ways around: which are found, tried on the target, chosen and written down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from day0.adapters.base.operator_capture import Capture, CaptureRequest, FunctionCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.registries.registry import Known, Registry
from day0.adapters.registries.row import CHECKS, RegistryRow
from day0.tasks.coverage.alternatives import Judged, combinations, entry, smallest
from day0.tasks.coverage.decomposition import parts_of, rebuild
from day0.tasks.coverage.needs import Need
from day0.tasks.coverage.statuses import State
from support.captured import call_of, meta

_aten = torch.ops.aten
_BF16 = torch.bfloat16


def _capture(*functions: FunctionCall) -> Capture:
    return Capture(request=CaptureRequest(), functions=functions)


def test_every_combination_but_the_models_own_is_offered() -> None:
    attention = FunctionCall(name="attention", implementation="sdpa")
    experts = FunctionCall(name="experts", implementation="grouped_mm")
    spec = TargetSpec.parse("eager@cpu/bf16")
    dense = combinations(_capture(attention), spec)
    assert dense == [{"attn": "eager"}, {"attn": "flex_attention"}]
    both = combinations(_capture(attention, experts), spec)
    assert len(both) == 3 * 3 - 1
    assert {"attn": "eager", "experts": "batched_mm"} in both
    named = TargetSpec.parse("eager@cpu/bf16?attn=eager")
    assert combinations(_capture(attention, experts), named) == [
        {"experts": "batched_mm"},
        {"experts": "eager"},
    ]


def test_the_work_at_risk_is_what_the_choice_looks_at() -> None:
    """Held against what the target as named does, not against each one's own."""
    add, wide, neg = (
        call_of(_aten.add.Tensor, meta(10), meta(10)),
        call_of(_aten.add.Tensor, meta(1, 1000), meta(1, 1000)),
        call_of(_aten.neg.default, meta(1000)),
    )
    known = RegistryRow(op=neg.op, status="native")
    sound = State(Need("", [neg], 1.0), Known(known, "measured"))
    named = Judged({}, _capture(), [State(Need("", [add], 1.0), None), sound])
    other = Judged({"attn": "eager"}, _capture(), [State(Need("", [wide], 1.0), None), sound])
    listed = [entry(one, named, chosen=False, checked="").impact for one in (named, other)]
    flops, moved = 10 + 1000, 4 * (3 * 10 + 2 * 1000)
    assert listed[0] == pytest.approx((10 / flops + 4 * 30 / moved) / 2, abs=1e-6)
    assert listed[1] == pytest.approx((1000 / flops + 4 * 3000 / moved) / 2, abs=1e-6)
    assert smallest([other, named]) is named
    assert smallest([named, other]) is named


def test_a_decomposition_counts_its_leaves() -> None:
    silu = call_of(_aten.silu.default, meta(4, 8, dtype=_BF16))
    everything = rebuild([silu], lambda calls: {call.row_key for call in calls})
    rebuilt = everything[silu.row_key]
    assert rebuilt.leaves == {"aten._to_copy.default": 2, "aten.mul.Tensor": 1, "aten.sigmoid.default": 1}
    assert rebuilt.launches == 3


def test_a_leaf_that_is_missing_is_rebuilt_in_turn_whatever_the_order() -> None:
    silu = call_of(_aten.silu.default, meta(4, 8))
    sigmoid = call_of(_aten.sigmoid.default, meta(4, 8))
    lacks = {"aten.silu.default", "aten.sigmoid.default"}

    def look(calls: Any) -> set[str]:
        return {call.row_key for call in calls if call.op not in lacks}

    one, other = rebuild([silu, sigmoid], look), rebuild([sigmoid, silu], look)
    assert one == other
    assert set(one) == {silu.row_key, sigmoid.row_key}
    assert "aten.exp.default" in one[silu.row_key].leaves
    lacks.add("aten.exp.default")
    assert rebuild([silu, sigmoid], look) == {}


def test_a_decomposition_that_comes_back_to_itself_proves_nothing() -> None:
    rsqrt = call_of(_aten.rsqrt.default, meta(4, 8))
    assert [part.op for part in parts_of(rsqrt)] == ["prims.rsqrt.default"]
    assert rebuild([rsqrt], lambda calls: {call.row_key for call in calls if call.op != rsqrt.op}) == {}


def test_a_composite_operator_falls_apart_too() -> None:
    shape = (1, 2, 6, 8)
    one = call_of(_aten.bmm.default, meta(2, 6, 8), meta(2, 8, 6))
    query = [
        {"tensor": {"dtype": "fp32", "shape": shape, "stride": (96, 48, 8, 1), "alias": place}}
        for place in range(3)
    ]
    call = one.model_copy(
        update={
            "op": "aten.scaled_dot_product_attention.default",
            "args": query,
            "dtypes": ["fp32"] * 3,
            "shapes": [shape] * 3,
        }
    )
    rebuilt = rebuild([call], lambda calls: {part.row_key for part in calls})
    assert "aten.bmm.default" in rebuilt[call.row_key].leaves
    assert rebuilt[call.row_key].launches > 2


@pytest.mark.parametrize("checks", [CHECKS, CHECKS[:1]])
def test_nothing_is_opened_for_what_is_known(checks: Sequence[str]) -> None:
    """Nor for what came with Day0 and was tried with one call."""
    from day0.adapters.base.target import TargetDescription
    from day0.adapters.base.values import Fingerprint
    from day0.tasks.coverage.measure import measure_coverage
    from day0.tasks.coverage.question import Question

    call = call_of(_aten.mm.default, meta(4, 8, dtype=_BF16), meta(8, 4, dtype=_BF16))
    fingerprint = Fingerprint(family="f", exact={"torch": "1"})
    row = RegistryRow(
        op=call.op,
        dtypes=call.dtypes,
        ranks=[2, 2],
        status="native",
        checks=checks,
        fingerprint=fingerprint.digest,
    )
    registry = Registry("eager@cpu").merged([row], {fingerprint.digest: fingerprint})

    def refuse(spec: TargetSpec) -> nullcontext[Any]:
        raise AssertionError("a worker was asked for")

    description = TargetDescription(
        api=1, capabilities=["op"], dtypes={}, devices=[], fingerprint=fingerprint
    )
    record = measure_coverage(
        Question(
            spec=TargetSpec.parse("eager@cpu/bf16"),
            description=description,
            capture=Capture(request=CaptureRequest(), calls=[call]),
            registry=registry,
            config={},
            config_digest="c",
            open_target=refuse,
            known_rows=Registry,
        )
    )
    assert record.facts.statuses == {"native": 1}
    assert record.facts.ops[0].grade == "measured"
    assert record.observations.probed == 0
    assert not record.observations.spent
    said = "tried with one call; not yet with other calls, other values, other attributes"
    assert (said in record.facts.ops[0].evidence) is (checks != CHECKS)


def test_judging_what_is_known_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "import day0.tasks.coverage.measure, day0.tasks.coverage.task\n"
        "import day0.adapters.models.captures, day0.adapters.registries.files\n"
        "assert not {'torch', 'transformers', 'prefect'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
