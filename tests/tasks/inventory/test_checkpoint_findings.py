"""What an adapter remarks reaches the record, whatever its word for it."""

from __future__ import annotations

import pytest

from day0.adapters.base.values import Anomaly
from day0.tasks.catalogue import CATALOGUE
from day0.tasks.finding import verdict_of
from day0.tasks.inventory.checkpoint_findings import _CODES, anomaly_findings
from day0.tasks.verdict import Verdict


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("truncated_shard", Verdict.FAIL),
        ("missing_shard", Verdict.FAIL),
        ("pickle_only", Verdict.FAIL),
        ("index_only_tensor", Verdict.FAIL),
        ("header_gap", Verdict.FAIL),
        ("duplicate_tensor", Verdict.WARN),
        ("stale_index", Verdict.WARN),
        ("index_total_size", Verdict.PASS),
        ("other_weights", Verdict.PASS),
        ("never_heard_of", Verdict.WARN),
    ],
)
def test_weight_of_an_anomaly(word: str, verdict: Verdict) -> None:
    (finding,) = anomaly_findings(
        [Anomaly(code=word, subject="x", message="what happened", evidence="where")]
    )
    assert verdict_of([finding]) is verdict
    assert finding.message == "what happened"
    assert finding.evidence == ("where",)


def test_every_word_has_an_entry() -> None:
    assert {code for code, _ in _CODES.values()} <= CATALOGUE.keys()


def test_the_same_remark_counts_once() -> None:
    anomaly = Anomaly(code="duplicate_tensor", subject="x", message="m")
    assert len(anomaly_findings([anomaly, anomaly])) == 1
