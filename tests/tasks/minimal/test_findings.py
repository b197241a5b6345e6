from __future__ import annotations

import pytest

from day0.tasks.minimal.findings import load_findings, node_findings, operator_in
from day0.tasks.minimal.record import LoadFact, NodeRunFact


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("Could not run 'aten::silu.out' with arguments from the 'NPU' backend.", "aten::silu.out"),
        ("\"addmm_impl_cpu_\" not implemented for 'Half'", "addmm_impl_cpu_"),
        ("No ONNX function found for <OpOverload(op='aten.foo')>: aten.foo.default", "aten.foo.default"),
        ("[ONNXRuntimeError] : 9 : Could not find an implementation for Trilu(14) node", "Trilu"),
        ("Unsupported operators: 'Einsum'", "Einsum"),
        ("something else broke", ""),
    ],
)  # fmt: skip
def test_the_operator_is_read_out_of_what_stacks_say(text: str, operator: str) -> None:
    assert operator_in(text) == operator


def fact(name: str, outcome: str, kind: str = "k", phase: str = "prefill", detail: str = "d") -> NodeRunFact:
    return NodeRunFact(name=name, kind=kind, role="layer", phase=phase, outcome=outcome, detail=detail)


def test_one_finding_for_each_class_of_each_kind() -> None:
    facts = [
        fact("a", "ran"),
        fact("b", "crash"),
        fact("b", "crash", phase="decode"),
        fact("c", "crash", kind="other"),
        fact("d", "missing_operator", detail="Could not run 'aten::mm' here"),
        fact("e", "not_run", kind="x"),
        fact("f", "not_run", kind="y"),
    ]
    found = node_findings(facts, {"b": ["Segmentation fault"]}, "eager@npu", "day0 minimal M")
    assert [(finding.code, finding.subject.name) for finding in found] == [
        ("MIN006", "b"),
        ("MIN006", "c"),
        ("MIN001", "d"),
        ("MIN012", "e"),
    ]
    assert found[0].evidence == ("Segmentation fault", "day0 minimal M")
    assert "prefill and decode" in found[0].message
    assert "(operator aten::mm)" in found[2].message
    assert "e, f" in found[3].message


def test_keys_that_the_reference_has_no_place_for_either_are_no_error() -> None:
    load = LoadFact(outcome="loaded", unexpected=("mtp.weight",))
    assert [f.code for f in load_findings(load, ["mtp.weight"], "t", "r")] == ["MIN018"]
    assert [f.code for f in load_findings(load, [], "t", "r")] == ["MIN013"]
    wrong = LoadFact(outcome="loaded", missing=("a",), mismatched=("b: [1], [2]",))
    (found,) = load_findings(wrong, [], "t", "r")
    assert "1 keys are missing: a" in found.message
    assert "1 keys have another shape: b: [1], [2]" in found.message
    assert load_findings(LoadFact(outcome="loaded"), [], "t", "r") == []
    (failed,) = load_findings(LoadFact(outcome="memory", detail="no room"), [], "t", "r")
    assert failed.code == "MIN014"
    assert load_findings(None, [], "t", "r") == []
