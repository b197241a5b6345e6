"""The coverage of coverage: every seeded fault is found, and nothing else is reported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Capture, CaptureRequest, FunctionCall, Kernel
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Anomaly
from day0.adapters.registries.files import add_to_store, stored_registry
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import CHECKS, RegistryRow
from day0.adapters.targets.target import WorkerTarget
from day0.tasks.coverage.knowledge import Knowledge
from day0.tasks.coverage.measure import measure_coverage
from day0.tasks.coverage.probe import probe
from day0.tasks.coverage.question import Question
from day0.tasks.coverage.record import CoverageRecord
from day0.tasks.verdict import Verdict
from support.captured import calls_of
from support.simulated_target import OpenSimulated


def _capture(model_type: str = "llama", **changes: Any) -> Capture:
    values = {"request": CaptureRequest(), "calls": calls_of(model_type), "captured_dtype": "bf16"}
    return Capture.model_validate({**values, **changes})


def _measure_with_ways(open_simulated: OpenSimulated, **faults: Any) -> CoverageRecord:
    """As `_measure`, on a target that is opened anew with each way around."""
    target = open_simulated(**faults)

    def open_one(spec: TargetSpec) -> Any:
        return nullcontext(open_simulated(**faults, with_=spec.options["with"]) if spec.options else target)

    return _measure(target, open_target=open_one)


def _measure(target: Any, capture: Capture | None = None, **options: Any) -> CoverageRecord:
    question = Question(
        spec=target.spec,
        description=target.describe(),
        capture=capture or _capture(),
        **{
            "open_target": lambda spec: nullcontext(target),
            "registry": Registry("simulated@cpu"),
            "config": {},
            "config_digest": "c",
            "budget": 900.0,
            **options,
        },
    )
    return measure_coverage(question)


def test_exactly_the_seeded_faults_are_found(open_simulated: OpenSimulated) -> None:
    target = open_simulated(
        timeout=6.0,
        missing="aten.scaled_dot_product_attention.default aten.silu.default",
        dtype_="aten.mm.default:bf16",
        wrong="aten.rsqrt.default",
        crash="aten.cos.default",
        hang="aten.sin.default",
    )
    record = _measure(target)
    faulty = {entry.op: entry.status for entry in record.facts.ops if entry.status != "native"}
    assert faulty == {
        "aten.scaled_dot_product_attention.default": "decomposed",
        "aten.silu.default": "decomposed",
        "aten.mm.default": "missing",
        "aten.rsqrt.default": "wrong",
        "aten.cos.default": "crash",
        "aten.sin.default": "hang",
    }
    codes = {(finding.code, finding.subject.name.partition("(")[0]) for finding in record.findings}
    assert {code for code in codes if code[0] != "COV017"} == {
        ("COV002", "aten.mm.default"),
        ("COV003", "aten.rsqrt.default"),
        ("COV004", "aten.cos.default"),
        ("COV005", "aten.sin.default"),
        ("COV007", "simulated@cpu/bf16"),
    }
    assert record.verdict is Verdict.FAIL
    assert record.facts.gaps[0].op == "aten.mm.default"
    assert [gap.impact for gap in record.facts.gaps] == sorted(
        (gap.impact for gap in record.facts.gaps), reverse=True
    )
    (silu,) = [entry for entry in record.facts.ops if entry.op == "aten.silu.default"]
    assert (
        "rebuilt from 2 x aten._to_copy.default, 1 x aten.mul.Tensor, 1 x aten.sigmoid.default"
        in silu.evidence
    )
    assert all(entry.grade == "measured" for entry in record.facts.ops)


def test_a_way_around_that_works_is_chosen_and_its_gap_warns(open_simulated: OpenSimulated) -> None:
    record = _measure_with_ways(
        open_simulated, missing="aten.silu.default", wrong="aten.rsqrt.default", dtype_="aten.mm.default:bf16"
    )
    gaps = {gap.op: gap for gap in record.facts.gaps}
    assert {op: gap.workaround for op, gap in gaps.items()} == {
        "aten.silu.default": "decompose:aten.silu.default",
        "aten.rsqrt.default": "",  # already computed in fp32, and rebuilt from nothing else
        "aten.mm.default": "cast:aten.mm.default:fp32",
    }
    assert [one.id for one in record.facts.chosen] == [
        gap.workaround for gap in record.facts.gaps if gap.checked
    ]
    silu, mm = gaps["aten.silu.default"], gaps["aten.mm.default"]
    assert (silu.status, silu.launches) == ("decomposed", 3)
    assert "replayed on the target: error" in silu.checked
    assert 0 < float(mm.error or 0) < 1.6e-2
    severity = {finding.subject.name.partition("(")[0]: finding.severity for finding in record.findings}
    assert severity["aten.mm.default"] == "warning"
    assert severity["aten.rsqrt.default"] == "error"
    assert record.verdict is Verdict.FAIL


@pytest.mark.parametrize("fault", ["wrong", "crash"])
def test_a_decomposition_stands_in_for_what_is_wrong_or_dies_too(
    open_simulated: OpenSimulated, fault: str
) -> None:
    silu = _first("aten.silu.default")
    target = open_simulated(**{fault: silu.op})

    def open_one(spec: TargetSpec) -> Any:
        way = spec.options.get("with", "")
        return nullcontext(open_simulated(**{fault: silu.op}, with_=way) if way else target)

    record = _measure(target, _capture(calls=[silu]), open_target=open_one)
    (gap,) = record.facts.gaps
    assert (gap.status, gap.workaround) == (fault, f"decompose:{silu.op}")
    assert "replayed on the target: error" in gap.checked
    assert [one.id for one in record.facts.chosen] == [gap.workaround]
    assert record.verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("reason", "verdict"), [("dtype: no kernel for bf16", Verdict.UNVERIFIED), ("no kernel", Verdict.FAIL)]
)
def test_a_way_around_that_there_was_no_time_for_decides_nothing(
    sound_target: WorkerTarget, reason: str, verdict: Verdict
) -> None:
    """Without any time, but for a cast that cannot help where there is no kernel for any dtype."""
    mm = _first("aten.mm.default")
    registry = _known([mm], sound_target, status="missing", reason=reason)
    record = _measure(sound_target, _capture(calls=[mm]), registry=registry, budget=0.0)
    assert record.verdict is verdict
    (gap,) = record.facts.gaps
    undecided = verdict is Verdict.UNVERIFIED
    assert gap.workaround == ("cast:aten.mm.default:fp32" if undecided else "")
    assert gap.checked == ""
    assert ("COV022" in {finding.code for finding in record.findings}) is undecided


def test_what_an_alternative_taught_is_said_of_the_model_as_named(
    sound_target: WorkerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the time for the model was too short, and an operator of it is tried for another list."""
    neg, mul = _first("aten.neg.default"), _first("aten.mul.Tensor")
    learn = Knowledge.learn
    skipped: list[str] = []

    def too_late(knowledge: Knowledge, needs: Any, share: float = 1.0) -> None:
        if skipped:
            learn(knowledge, needs, share)
        skipped.append(needs)

    monkeypatch.setattr(Knowledge, "learn", too_late)
    attention = FunctionCall(name="attention", implementation="sdpa")
    record = _measure(
        sound_target,
        _capture(calls=[neg, mul], functions=[attention]),
        registry=_known([mul], sound_target, status="slow"),
        capture_all=lambda requests: [_capture(calls=[neg]) for _ in requests],
    )
    assert {entry.op: entry.status for entry in record.facts.ops} == {neg.op: "native", mul.op: "slow"}
    assert all(not one.unknown for one in record.facts.alternatives)
    assert next(one for one in record.facts.alternatives if one.chosen).options == {"attn": "eager"}


def test_a_clamp_beyond_usual_inputs_is_found(open_simulated: OpenSimulated) -> None:
    record = _measure(open_simulated(clamp="aten.silu.default"))
    (entry,) = [entry for entry in record.facts.ops if entry.status != "native"]
    assert (entry.op, entry.status) == ("aten.silu.default", "wrong")
    assert "wide inputs" in entry.evidence


def test_a_sound_target_passes_and_a_known_one_is_not_asked(sound_target: WorkerTarget) -> None:
    learnt: list[Registry] = []
    target = sound_target
    record = _measure(target, keep=learnt.append)
    assert record.verdict is Verdict.PASS
    assert record.facts.statuses == {"native": len(record.facts.ops)}
    assert "aten.mm.default(bf16,bf16)" in record.facts.new_since_registry
    assert sum(entry.impact for entry in record.facts.ops) == pytest.approx(1.0, abs=1e-4)
    registry = Registry("simulated@cpu")
    for part in learnt:
        registry = registry.overlaid(part)
    again = _measure(target, registry=registry)
    assert again.observations.probed == 0
    assert again.facts.ops == record.facts.ops
    assert again.facts.new_since_registry == ()


def _half_tried(calls: Sequence[OperatorCall], target: WorkerTarget) -> Registry:
    """As a run leaves it whose time was up after the first call of each row."""
    return _known(calls, target, checks=CHECKS[:1])


def _known(calls: Sequence[OperatorCall], target: WorkerTarget, **facts: Any) -> Registry:
    fingerprint = target.describe().fingerprint
    rows = [
        RegistryRow(
            op=call.op,
            dtypes=call.dtypes,
            ranks=[len(shape) for shape in call.shapes],
            result_dtype=call.result_dtype,
            variant=call.variant,
            fingerprint=fingerprint.digest,
            **{"status": "native", "checks": CHECKS, **facts},
        )
        for call in calls
    ]
    return Registry("simulated@cpu").merged(rows, {fingerprint.digest: fingerprint})


def _first(op: str) -> OperatorCall:
    return next(call for call in calls_of("llama") if call.op == op)


def test_the_next_run_goes_on_with_rows_of_which_one_call_was_tried(open_simulated: OpenSimulated) -> None:
    """A fault that no ordinary input shows does not stay `native` because its first call was right."""
    silu = _first("aten.silu.default")
    faulty = open_simulated(clamp=silu.op)
    half = _half_tried([silu], faulty)
    kept: dict[str, Any] = {"registry": half, "known_rows": lambda name: replace(half, name=name)}
    still = _measure(faulty, _capture(calls=[silu]), budget=0.0, **kept)
    assert still.facts.statuses == {"native": 1}
    assert still.observations.spent
    on = _measure(faulty, _capture(calls=[silu]), **kept)
    assert on.facts.statuses == {"wrong": 1}
    assert on.observations.probed >= 1  # and what its decomposition needs
    assert not on.observations.spent


def test_rows_that_were_shipped_half_tried_are_gone_on_with_beside_others(sound_target: WorkerTarget) -> None:
    calls = [_first("aten.neg.default"), _first("aten.mul.Tensor")]
    half = _half_tried(calls, sound_target)
    alone = _measure(sound_target, _capture(calls=calls), registry=half, known_rows=Registry)
    assert alone.observations.probed == 0
    one = _half_tried(calls[:1], sound_target)
    beside = _measure(sound_target, _capture(calls=calls), registry=one, known_rows=Registry)
    assert beside.observations.probed == 2
    assert not any("not yet" in entry.evidence for entry in beside.facts.ops)


def test_what_the_budget_leaves_is_unverified(sound_target: WorkerTarget) -> None:
    record = _measure(sound_target, budget=0.0)
    assert set(record.facts.statuses) == {"unknown"}
    assert record.verdict is Verdict.UNVERIFIED
    (finding,) = record.findings
    assert finding.code == "COV006"
    assert f"{len(record.facts.ops)} operators with 100.0% of the work" in finding.message


def test_a_phase_that_was_not_captured_is_unverified(sound_target: WorkerTarget) -> None:
    lost = Anomaly(
        code="phase_not_captured", subject="decode", message="operators of phase decode are not known"
    )
    capture = _capture(calls=calls_of("llama")[:1], anomalies=(lost,))
    record = _measure(sound_target, capture)
    assert record.verdict is Verdict.UNVERIFIED
    assert [finding.code for finding in record.findings] == ["COV008"]


def test_kernels_outside_the_dispatcher_are_listed(sound_target: WorkerTarget) -> None:
    made = Kernel(name="hub:kernels-community/x", kind="hub", architectures=["cuda sm_90"], fallback="torch")
    needed = Kernel(name="package:y", kind="package", required_by=["YMixer"])
    record = _measure(sound_target, _capture(calls=calls_of("llama")[:1], kernels=[needed, made]))
    assert [kernel.name for kernel in record.facts.kernels] == [made.name, needed.name]
    (finding,) = record.findings
    assert finding.code == "COV011"
    assert "1 of them are not made for cpu" in finding.message
    assert "Without package:y transformers does not run it" in finding.message


def test_a_probe_goes_on_where_it_was(sound_target: WorkerTarget, tmp_path: Any) -> None:
    store = RunStore(str(tmp_path))
    target = sound_target
    calls = calls_of("llama")[:12]
    first = probe(calls[:6], target, store)
    assert (first.known_before, first.left) == (0, 0)
    second = probe(calls, target, store)
    assert second.known_before == first.probed
    assert second.probed > 0
    assert len(stored_registry(store, "simulated@cpu").rows) == first.probed + second.probed
    assert probe(calls, target, store).probed == 0
    assert probe(calls[:6], target, store, refresh=True).probed == first.probed


def test_inherited_rows_are_probed_first(sound_target: WorkerTarget, tmp_path: Any) -> None:
    store = RunStore(str(tmp_path))
    target = sound_target
    calls = calls_of("llama")
    fingerprint = target.describe().fingerprint
    related = fingerprint.model_copy(update={"exact": {**fingerprint.exact, "driver": "older"}})
    probe(calls[:4], target, store)
    rows = [
        row.model_copy(update={"fingerprint": related.digest})
        for row in stored_registry(store, "simulated@cpu").rows.values()
    ]
    other = RunStore(str(tmp_path / "other"))
    add_to_store(other, Registry("simulated@cpu").merged(rows, {related.digest: related}))
    record = _measure(target, registry=stored_registry(other, "simulated@cpu"), budget=0.0)
    assert {entry.grade for entry in record.facts.ops} == {"inherited", ""}
    probe(calls, target, other, budget=5.0)
    digests = {digest for _, digest in stored_registry(other, "simulated@cpu").rows}
    assert fingerprint.digest in digests
    tried = [
        key for key, digest in stored_registry(other, "simulated@cpu").rows if digest == fingerprint.digest
    ]
    assert {row.key for row in rows} <= set(tried)  # whatever else the time did not suffice for


@pytest.mark.slow
def test_a_way_around_that_the_target_names_is_tried_too(open_simulated: OpenSimulated) -> None:
    """In half precision squares beyond 65504 are infinite; the target itself has the operator."""
    op = "aten.pow.Tensor_Scalar"
    plain = open_simulated()
    sound, broken = f"decompose:{op}", f"cast:{op}:fp16"
    calls = [call for call in calls_of("llama") if call.op == op]

    def measured(way: str) -> CoverageRecord:
        question = Question(
            spec=plain.spec.model_copy(update={"options": {"with": way}}),
            description=plain.describe(),
            capture=_capture(calls=calls),
            registry=Registry("simulated@cpu"),
            config={},
            config_digest="c",
            open_target=lambda spec: nullcontext(
                open_simulated(with_=spec.options["with"]) if "with" in spec.options else plain
            ),
            budget=900.0,
        )
        return measure_coverage(question)

    record = measured(broken)
    assert record.facts.statuses == {"native": 1}
    assert [finding.code for finding in record.findings if finding.severity == "error"] == ["COV024"]
    assert broken in record.findings[0].message
    assert not [finding for finding in measured(sound).findings if finding.code == "COV024"]


@pytest.mark.parametrize(("spent", "verdict"), [(True, Verdict.UNVERIFIED), (False, Verdict.FAIL)])
def test_a_gap_without_a_way_around_is_decided_only_where_there_was_time_to_look(
    spent: bool, verdict: Verdict, open_simulated: OpenSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Knowledge, "spent", property(lambda knowledge: spent))
    target = open_simulated(missing="aten.mm.default")
    record = _measure(target, _capture(calls=[_first("aten.mm.default")]))
    assert [gap.status for gap in record.facts.gaps] == ["missing"]
    assert record.verdict is verdict
