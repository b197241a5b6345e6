"""Opens a target: from its name to something that can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.worker import Worker, WorkerPlan
from day0.adapters.base.worker_sources import pack_sources
from day0.adapters.workarounds.registry import named_in

from .endpoint import STACK as ENDPOINT
from .endpoint import EndpointTarget
from .registry import stack_of
from .target import WorkerTarget


def open_target(
    spec: TargetSpec,
    *,
    timeout: float = 300.0,
    memory_limit: int = 8 * 2**30,
    command: Sequence[str] = (),
    log: Path | None = None,
) -> WorkerTarget:
    """A target that starts its worker, or asks its server, with the first call; use it as a context manager.

    Args:
        spec: which stack on what.
        timeout: seconds that one call may take.
        memory_limit: bytes that the worker and all below it may take (PSS of the local process tree).
        command: argv that ends in another environment's Python (`docker exec -i C python`, `ssh HOST
            python`); empty: this Python.
        log: file to which the worker's standard error is appended.

    Raises:
        InputError: E111, unknown stack; E112, a name claimed twice; E113, its source is not there; E176 and
            E177, a way around that `?with=` names; E185, an endpoint without a usable address; E188, an
            option that the stack does not know.
    """
    if spec.stack == ENDPOINT:
        return EndpointTarget(spec, timeout)  # type: ignore[return-value]  # offers all that a target does
    reference = stack_of(spec)
    ways = named_in(spec)
    plan = WorkerPlan(
        hello={
            "stack": reference,
            "device": spec.device,
            "count": spec.count,
            "dtype": spec.dtype,
            "options": dict(spec.options),
            "workarounds": dict(ways),
        },
        sources=pack_sources(reference.partition(":")[0], *(way.partition(":")[0] for way in ways.values())),
        command=tuple(command),
        memory_limit=memory_limit,
        log=log,
    )
    return WorkerTarget(spec, partial(Worker, plan), timeout)
