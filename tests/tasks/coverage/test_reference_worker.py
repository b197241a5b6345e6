"""References come from a worker: the flow outlives whatever they do."""

from __future__ import annotations

import pytest
import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.tasks.coverage.reference_worker import Asked, ReferenceWorker
from day0_worker.operator_inputs import make_inputs
from support.captured import call_of, meta

aten = torch.ops.aten


def _asked(call: OperatorCall) -> Asked:
    return Asked(call, 20, "unit")


def test_inputs_and_values_cross_unchanged_and_large_calls_are_made_smaller() -> None:
    mm = call_of(aten.mm.default, meta(4, 6, dtype=torch.bfloat16), meta(6, 2, dtype=torch.bfloat16))
    large = call_of(aten.mm.default, meta(4096, 4096), meta(4096, 4096))
    spin = call_of(aten.mul.Tensor, meta(3, dtype=torch.complex64), meta(3, dtype=torch.complex64))
    nowhere = OperatorCall(op="aten.mm.default", args=mm.args[:1], dtypes=["bf16"], shapes=[[4, 6]])
    with ReferenceWorker() as references:
        found, shrunk, turned, none = references.ask([_asked(call) for call in (mm, large, spin, nowhere)])
    assert found.call == mm
    assert found.reference is not None
    left, right = make_inputs(mm.model_dump(mode="json"), 20, "unit")
    assert torch.equal(found.inputs[0], left)
    torch.testing.assert_close(found.reference.values[0], left.double() @ right.double())
    assert found.reference.like is not None
    assert (found.reference.kind, found.reference.like[0].dtype) == ("fp64", torch.bfloat16)
    assert shrunk.call is not None
    assert max(size for shape in shrunk.call.shapes for size in shape) < 4096
    assert turned.reference is not None
    assert turned.reference.values[0].dtype is torch.complex128
    assert (none.reference, none.reason != "") == (None, True)


@pytest.mark.slow
def test_a_reference_that_dies_or_hangs_leaves_the_others() -> None:
    calls = [
        call_of(function, meta(2))
        for function in (aten.exp.default, aten.cos.default, aten.sin.default, aten.tanh.default)
    ]
    with ReferenceWorker("support.faulty_reference:FaultyReference", timeout=5.0) as references:
        exp, cos, sin, tanh = references.ask([_asked(call) for call in calls])
    assert exp.reference is not None
    assert tanh.reference is not None
    assert cos.reason.startswith("the reference itself crashes")
    assert sin.reason.startswith("the reference itself does not return")
