"""Opens the simulated accelerator as a target, without installing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.worker import Worker, WorkerPlan
from day0.adapters.base.worker_sources import pack_sources
from day0.adapters.targets.target import WorkerTarget
from day0.adapters.workarounds.registry import references

OpenSimulated = Callable[..., WorkerTarget]


@pytest.fixture
def open_simulated() -> Iterator[OpenSimulated]:
    """`open_simulated(timeout=5, missing="aten.silu.default", ...)`; closed at the end of the test."""
    opened: list[WorkerTarget] = []

    def open_one(
        timeout: float = 20.0, dtype: str = "bf16", device: str = "cpu", **faults: str
    ) -> WorkerTarget:
        target = simulated(timeout, dtype, faults, device)
        opened.append(target)
        return target

    yield open_one
    for target in opened:
        target.close()


@pytest.fixture(scope="module")
def sound_target() -> Iterator[WorkerTarget]:
    """The simulated accelerator without faults, one worker for a whole test module."""
    with simulated(60.0, "bf16", {}, "cpu") as target:
        yield target


def simulated(
    timeout: float,
    dtype: str,
    faults: Mapping[str, str],
    device: str,
    stack: str = "support.simulated_accelerator:SimulatedAccelerator",
) -> WorkerTarget:
    plan = WorkerPlan(
        hello={
            "stack": stack,
            "device": device,
            "count": 1,
            "dtype": dtype,
            "options": {name.rstrip("_"): value for name, value in faults.items()},
            "workarounds": dict(references()),
        },
        sources=pack_sources(stack.partition(":")[0]),
        command=(),
        memory_limit=4 * 2**30,
        log=None,
    )
    return WorkerTarget(TargetSpec.parse(f"simulated@{device}/{dtype}"), partial(Worker, plan), timeout)
