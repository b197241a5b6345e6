"""What is said of kinds of nodes that were not compiled."""

from __future__ import annotations

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.coverage.compiled import Compiled, findings_of_kinds
from day0.tasks.coverage.kind_facts import NO_TIME
from day0.tasks.coverage.record_kinds import KindCompile
from day0.tasks.verdict import Verdict


def _kind(outcome: str, detail: str = "") -> KindCompile:
    return KindCompile(
        kind="k",
        node="model.layers.0",
        nodes=3,
        role="layer",
        phase="prefill",
        outcome=outcome,
        detail=detail,
    )


@pytest.mark.parametrize(
    ("target", "kinds", "codes"),
    [
        ("inductor@cpu/fp32", [_kind("ran"), _kind("not_run", NO_TIME)], ["COV025"]),
        ("eager@cpu/fp32", [_kind("ran"), _kind("not_run", NO_TIME)], []),
        ("inductor@cpu/fp32", [_kind("ran")], []),
        ("inductor@cpu/fp32", [_kind("shape", "refused"), _kind("not_run", "it failed before")], ["COV019"]),
    ],
)
def test_kinds_without_time_leave_a_compiling_target_undecided(
    target: str, kinds: list[KindCompile], codes: list[str]
) -> None:
    found = list(findings_of_kinds(TargetSpec.parse(target), "fp32", Compiled(kinds)))
    assert [finding.code for finding in found] == codes
    if codes == ["COV025"]:
        assert found[0].verdict is Verdict.UNVERIFIED
        assert "1 of 2" in found[0].message
