"""Faults that show only now and then are found; what differs without being wrong is not reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.run_store import RunStore
from day0.tasks.coverage.probe import probe
from support.captured import call_of, meta
from support.simulated_target import OpenSimulated
from support.subtle_faults import SUBTLE

_aten = torch.ops.aten
_BF16 = torch.bfloat16
_TALL = meta(64, 32, dtype=_BF16)

CALLS: dict[str, tuple[OperatorCall, str]] = {
    "beyond aten.mul.Tensor": (
        call_of(_aten.mul.Tensor, meta(16, 12000, dtype=_BF16), meta(16, 12000, dtype=_BF16)), "wrong",
    ),
    "strided aten.bmm.default": (
        call_of(_aten.bmm.default, meta(2, 8, 16, dtype=_BF16), meta(2, 4, 16, dtype=_BF16).mT), "wrong",
    ),
    "negative aten.cat.default": (call_of(_aten.cat.default, [_TALL, _TALL], -1), "wrong"),
    "negative aten.mean.dim": (call_of(_aten.mean.dim, _TALL, [-1], True), "wrong"),
    "masked aten._softmax.default": (call_of(_aten._softmax.default, _TALL, -1, False), "wrong"),
    "narrow aten.cumsum.default": (
        call_of(_aten.cumsum.default, meta(2, 200, dtype=torch.int64), -1), "wrong",
    ),
    "rounded aten.mm.default": (
        call_of(_aten.mm.default, meta(8, 256, dtype=_BF16), meta(256, 16, dtype=_BF16)), "wrong",
    ),
    "unwritten aten.embedding.default": (
        call_of(_aten.embedding.default, _TALL, meta(2, 5, dtype=torch.int64)), "wrong",
    ),
    "clobbers aten.rsqrt.default": (call_of(_aten.rsqrt.default, _TALL), "wrong"),
    "stale aten.addmm.default": (
        call_of(_aten.addmm.default, meta(16, dtype=_BF16), _TALL, meta(32, 16, dtype=_BF16)), "wrong",
    ),
    "ignored aten.sum.dim_IntList:keepdim": (call_of(_aten.sum.dim_IntList, _TALL, [1], True), "wrong"),
    "ignored aten.argmax.default:dim": (call_of(_aten.argmax.default, _TALL, 1), "wrong"),
    "ignored aten.topk.default:largest": (call_of(_aten.topk.default, _TALL, 4, -1, False), "wrong"),
    "ignored aten.tril.default:diagonal": (call_of(_aten.tril.default, _TALL), "wrong"),
    "unstable aten.sort.default": (call_of(_aten.sort.default, _TALL, -1), "native"),
    "dtype aten.gather.default:bf16": (
        call_of(_aten.gather.default, _TALL, 1, meta(64, 2, dtype=torch.int64)), "missing",
    ),
}  # fmt: skip
"""`FAULT OPERATOR[:WHAT]` -> the call, and what a probe makes of it."""


def test_faults_that_show_now_and_then(open_simulated: OpenSimulated, tmp_path: Path) -> None:
    faults: dict[str, str] = {}
    for seeded in CALLS:
        fault, entry = seeded.split()
        faults[f"{fault}_"] = f"{faults.get(f'{fault}_', '')} {entry}".strip()
    assert {fault.rstrip("_") for fault in faults} >= set(SUBTLE) - {"tires"}
    calls = [call for call, _ in CALLS.values()]
    found = probe(calls, open_simulated(device="npu", **faults), RunStore(str(tmp_path)))
    statuses = {entry.op: entry.status for entry in found.ops}
    assert {seeded: statuses[call.op] for seeded, (call, _) in CALLS.items()} == {
        seeded: status for seeded, (_, status) in CALLS.items()
    }


def test_the_same_calls_without_faults(open_simulated: OpenSimulated, tmp_path: Path) -> None:
    calls = [call for call, _ in CALLS.values()]
    found = probe(calls, open_simulated(device="npu"), RunStore(str(tmp_path)))
    assert [f"{gap.op} {gap.status} {gap.evidence}" for gap in found.gaps] == []


@pytest.mark.slow
def test_a_kernel_that_hangs_from_its_third_call_on(open_simulated: OpenSimulated, tmp_path: Path) -> None:
    call = call_of(_aten.exp.default, _TALL)
    found = probe(
        [call], open_simulated(5.0, device="npu", tires="aten.exp.default"), RunStore(str(tmp_path))
    )
    assert [entry.status for entry in found.ops] == ["hang"]
