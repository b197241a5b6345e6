"""Known answers by single operators, on a real target and on one that computes wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from day0.adapters.base.errors import RemoteError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, Call
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.scale.model_shapes import Case
from day0.tasks.scale.op_compute import compute_by_operators
from support.canned_target import CannedTarget

CASES = [
    Case("gemm", (8, 64, 32), (8, 64, 32), "fp32"),
    Case("attention", (1, 2, 16, 8), (1, 2, 16, 8), "fp32"),
    Case("topk", (4, 100, 5), (4, 100, 5), "fp32"),
]


def test_right_answers() -> None:
    with open_target(TargetSpec.parse("eager@cpu/fp32"), timeout=60) as target:
        checks = compute_by_operators(CASES, target)
    assert [check["detail"] for check in checks] == ["", "", ""]
    assert all(check["passed"] and check["repeatable"] for check in checks)


class WrongKernels(CannedTarget):
    """Multiplies wrongly, has no top-k, attends rightly once and never the same again."""

    calls = 0

    def run_op(self, call: OperatorCall, tensors: Sequence[Any]) -> Answer:
        self.calls += 1
        if call.op == "aten.topk.default":
            raise RemoteError("no kernel", kind="missing_operator", type_name="NotImplementedError")
        if call.op == "aten.mm.default":
            output = tensors[0] @ tensors[1] * 1.05
        else:
            output = torch.nn.functional.scaled_dot_product_attention(*tensors) * (1 + 1e-6 * self.calls)
        return Answer(Call({"$tensor": "t0"}, {"t0": output}), 0.001, 0, {}, ())


def test_wrong_unsteady_and_missing_operators() -> None:
    gemm, attention, topk = compute_by_operators(CASES, WrongKernels())  # type: ignore[arg-type]  # only operators are asked
    assert not gemm["passed"]
    assert "relative error 0.05" in gemm["detail"]
    assert attention["passed"]
    assert not attention["repeatable"]
    assert topk["detail"] == "missing_operator: no kernel"
    assert topk["seconds"] == []
