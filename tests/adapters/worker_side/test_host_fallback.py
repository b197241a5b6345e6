from __future__ import annotations

import pytest
import torch

from day0.adapters.base.errors import RemoteError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0_worker.trees import decode


def operator(op: str, tensors: int) -> OperatorCall:
    facts = [{"dtype": "fp32", "shape": [3, 3], "stride": [3, 1], "alias": alias} for alias in range(tensors)]
    args = [{"tensor": fact} for fact in facts]
    return OperatorCall(op=op, args=args, dtypes=["fp32"] * tensors, shapes=[[3, 3]] * tensors)


@pytest.mark.usefixtures("faulty_stack")
def test_what_the_host_computes_is_told_from_what_the_device_does() -> None:
    calls = [
        operator("aten.mm.default", 2),  # a kernel of the device
        operator("aten.silu.default", 1),  # composite: the fallback is one operator below
        operator("aten.exp.default", 1),  # warns
        operator("aten.isin.Tensor_Tensor", 2),
        operator("aten.tril.default", 1),  # the host refuses, too
        operator("aten.silu.default", 1),  # each time, not once a process
    ]
    inputs = [[torch.rand(3, 3) for _ in call.shapes] for call in calls]
    with open_target(TargetSpec.parse("fallen@abacus/fp32"), timeout=60) as target:
        answers = target.run_ops(calls, inputs)
    said = []
    for answer in answers:
        if isinstance(answer, RemoteError):
            said.append(answer.kind)
            continue
        assert isinstance(answer, Answer)
        said.append(" ".join(f"{entry.code} {entry.subject}" for entry in answer.anomalies))
    assert said == [
        "",
        "cpu_fallback aten.silu.default",
        "cpu_fallback aten.exp.default",
        "cpu_fallback aten.isin.Tensor_Tensor",
        "double_fault",
        "cpu_fallback aten.silu.default",
    ]
    silu = answers[1]
    assert isinstance(silu, Answer)
    expected = torch.nn.functional.silu(inputs[1][0])
    assert torch.allclose(decode(silu.outputs.tree, silu.outputs.tensors), expected)
    assert "backend fallback" in silu.anomalies[0].evidence
    double = answers[4]
    assert isinstance(double, RemoteError)
    assert double.place["op"] == "aten.tril.default"
