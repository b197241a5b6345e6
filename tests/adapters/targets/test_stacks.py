from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from day0.adapters.base.errors import RemoteError, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget
from day0.testing.conformance import Subject, open_subject, run_conformance
from day0.testing.conformance_checks import runs_nodes


def product(dtype: str) -> OperatorCall:
    facts = [{"dtype": dtype, "shape": [4, 4], "stride": [4, 1], "alias": alias} for alias in (0, 1)]
    return OperatorCall(
        op="aten.mm.default",
        args=[{"tensor": fact} for fact in facts],
        dtypes=[dtype] * 2,
        shapes=[[4, 4]] * 2,
    )


@pytest.fixture(scope="module")
def onnxruntime() -> Iterator[WorkerTarget]:
    with open_target(TargetSpec.parse("onnxruntime@cpu/fp32"), timeout=200) as target:
        yield target


def test_onnxruntime_runs_an_operator_and_claims_no_loader(onnxruntime: WorkerTarget) -> None:
    said = onnxruntime.describe()
    assert set(said.capabilities) == {"op", "fragment"}
    assert said.fingerprint.family.startswith("onnxruntime 1.")
    left, right = torch.randn(4, 4), torch.randn(4, 4)
    began = time.monotonic()
    answer = onnxruntime.run_op(product("fp32"), [left, right])
    took = time.monotonic() - began
    assert torch.allclose(answer.outputs.tensors["t0"], left @ right, atol=1e-6)
    assert 0 < answer.seconds < took / 2  # the export, hundreds of times as long, is not counted


def test_onnxruntime_says_that_a_dtype_is_missing(onnxruntime: WorkerTarget) -> None:
    ones = torch.ones(4, 4, dtype=torch.bfloat16)
    with pytest.raises(RemoteError) as caught:
        onnxruntime.run_op(product("bf16"), [ones, ones])
    assert caught.value.kind == "dtype"


@pytest.mark.parametrize("target", ["onnxruntime@abacus", "openvino@abacus"])
def test_a_device_that_is_not_there_is_named(target: str) -> None:
    with open_target(TargetSpec.parse(target)) as opened, pytest.raises(WorkerUnusable, match="'abacus'"):
        opened.describe()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "target", ["eager@cpu/bf16", "onnxruntime@cpu/fp32", "inductor@cpu/fp32", "openvino@cpu/fp32?attn=eager"]
)
def test_the_shipped_stacks_conform(target: str) -> None:
    with open_subject(target) as subject:
        failed = [result for result in run_conformance(subject) if result.outcome == "failed"]
    assert failed == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_gap_of_openvino_with_grouped_heads_is_found() -> None:
    with open_subject("openvino@cpu/fp32") as subject:
        assert isinstance(subject, Subject)
        with pytest.raises(RemoteError, match="ScaledDotProductAttention") as caught:
            runs_nodes(subject)
    assert caught.value.kind in ("shape", "missing_operator")
