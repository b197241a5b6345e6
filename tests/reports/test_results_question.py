"""Can the results be trusted? The reference first, then faults, then what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from day0.reports.results_question import results_answer
from day0.tasks.finding import Subject, make_finding
from day0.tasks.numerics.record import FirstFault, NumericsRecord
from day0.tasks.numerics.record_parts import Manifest, ReferenceCheck, SelfTest
from day0.tasks.verdict import Verdict
from support.sample_numerics import optional_parts, sample_numerics, sample_routing, sample_self_test
from support.sample_records import ORT, any_code


def record(*, bad: int | None = None, **facts: Any) -> NumericsRecord:
    return sample_numerics(ORT, layers=4, bad=bad, **{**optional_parts(), **facts})


def test_a_clean_comparison_is_trusted() -> None:
    answer, told = results_answer(record())
    assert answer == "yes"
    within = "7 of 7 nodes within tolerance of transformers 5.24.0 eager cpu fp32"
    assert told == f"{within}; top-1 agreement 98.4 % over 64 positions."


def test_a_wrong_reference_outweighs_everything() -> None:
    check = ReferenceCheck(state="fail", method="likelihood", detail="Text is 16 nats away.")
    for bad in (None, 2):
        answer, told = results_answer(record(bad=bad, reference_check=check))
        assert answer == "no"
        assert told.startswith(
            "The reference itself is wrong, so nothing compared with it can be trusted (Text is"
        )


def test_an_unverified_reference_leaves_trust_unverified_and_faults_faults() -> None:
    check = ReferenceCheck(detail="too large for from_pretrained")
    answer, told = results_answer(record(reference_check=check))
    assert answer == "unverified"
    assert told.endswith("but the reference itself is not verified (too large for from_pretrained).")
    answer, told = results_answer(record(bad=2, reference_check=check))
    assert answer == "no"
    assert told.startswith("model.layers.2 (aten.silu.default) is the first")
    assert "61.4 against 12.0 allowed; the reference itself is not verified." in told


def test_a_failure_is_told_without_a_measure() -> None:
    said = "crash: the worker ended during run with exit status 7"
    fault = FirstFault(block="model.layers.2", metric="crash", value="NaN", tolerance="NaN", detail=said)
    answer = results_answer(record(bad=2, first_fault=fault))
    assert answer == ("no", f"model.layers.2 is the first node at fault: {said}.")


def test_unexplained_flips_are_a_no() -> None:
    answer, told = results_answer(record(routing=sample_routing(4, unexplained=5)))
    assert (answer, told) == (
        "no",
        "5 tokens went to other experts than rounding explains, first at model.layers.2.",
    )
    assert results_answer(record(routing=sample_routing(4)))[0] == "yes"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"manifest": Manifest(expected=9, seen=7)}, "2 of 9 calls of nodes were not captured"),
        ({"self_test": sample_self_test(missed=True)}, "missed: wrong_head_grouping"),
        ({"self_test": SelfTest(observer=False)}, "another when it is captured"),
    ],
)
def test_what_is_not_known_leaves_a_partly(facts: dict[str, Any], told: str) -> None:
    answer, evidence = results_answer(record(**facts))
    assert answer == "partly"
    assert told in evidence


def test_nothing_compared_is_unverified() -> None:
    blocks = [b.model_copy(update={"verdict": "unverified", "local": None}) for b in record().facts.blocks]
    assert results_answer(record(blocks=blocks))[0] == "unverified"
    assert results_answer(record(blocks=blocks[:1] + list(record().facts.blocks[1:])))[0] == "partly"
    assert results_answer(None) == ("unverified", "The numerics stage did not run.")


def test_an_undecided_stage_is_partly_with_its_finding() -> None:
    code = any_code("NUM", "warning", undecided="unverified")
    finding = make_finding(code, Subject(kind="node", name="x"), "x was not looked at")
    undecided = record().model_copy(update={"verdict": Verdict.UNVERIFIED, "findings": [finding]})
    answer, told = results_answer(undecided)
    assert answer == "partly"
    assert told.endswith("; x was not looked at.")
