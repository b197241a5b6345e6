"""Asks for references in a worker of their own, which may crash or hang without harm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import WorkerCrashed, WorkerError, WorkerTimeout, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.worker import Worker, WorkerPlan
from day0.adapters.base.worker_sources import pack_sources
from day0.adapters.targets.target import WorkerTarget
from day0_worker.trees import decode

from ..operator_reference import Reference
from ..thresholds import PROBE_ELEMENTS, REFERENCE_SECONDS
from .reference_stack import VERB, received

_MODULE = "day0.tasks.coverage.reference_stack"
_MEMORY = 8 * 2**30


@dataclass(frozen=True)
class Asked:
    """One call whose reference is wanted.

    Attributes:
        call: as captured; the reference makes it smaller where it is large.
        seed: of its inputs.
        spread: of its inputs, out of `day0_worker.operator_inputs.SPREADS`.
        limit: elements of all its tensors.
    """

    call: OperatorCall
    seed: int
    spread: str
    limit: int = PROBE_ELEMENTS


@dataclass(frozen=True)
class Expected:
    """What came of it.

    Attributes:
        call: in the size in which it is to be replayed; None where no smaller form is valid.
        reference: what it should give; None where nothing could tell.
        inputs: its tensors, by alias.
        reason: why there is no reference.
    """

    call: OperatorCall | None
    reference: Reference | None
    inputs: Sequence[Tensor] = ()
    reason: str = ""


class ReferenceWorker:
    """References from a worker that starts with the first call; use it as a context manager.

    Args:
        module: `module:Class` of the stack that computes them.
        timeout: seconds that one of them may take.
    """

    def __init__(self, module: str = f"{_MODULE}:ReferenceStack", timeout: float = REFERENCE_SECONDS) -> None:
        plan = WorkerPlan(
            hello={"stack": module, "device": "cpu", "count": 1, "dtype": None, "options": {}},
            sources=pack_sources(module.partition(":")[0]),
            command=(),
            memory_limit=_MEMORY,
            log=None,
        )
        spec = TargetSpec.parse("reference@cpu")
        self._ended = False
        self._target = WorkerTarget(spec, partial(self._start, plan), timeout)
        self._line = ThreadPoolExecutor(1, "reference")

    def __enter__(self) -> ReferenceWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True  # what it still computes, nobody waits for
        if self._target.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._target.pid, signal.SIGKILL)
        self._line.shutdown(wait=True, cancel_futures=True)
        self._target.close()

    def begin(self, asked: Sequence[Asked]) -> Future[list[Expected]]:
        """As `ask`, while the caller does something else; requests are answered in their order."""
        return self._line.submit(self._asked, list(asked))

    def ask(self, asked: Sequence[Asked]) -> list[Expected]:
        """The reference of each call, in order; one that kills or stalls the worker has none.

        Raises:
            WorkerUnusable: no worker starts at all.
        """
        return self.begin(asked).result()

    def _start(self, plan: WorkerPlan) -> Worker:
        if self._ended:
            raise WorkerUnusable("no reference is wanted any more")
        return Worker(plan)

    def _asked(self, asked: Sequence[Asked]) -> list[Expected]:
        jobs = [OperatorCall(op=VERB, args=[_job(one)]) for one in asked]
        answers = self._target.run_ops(jobs, [()] * len(jobs))
        return [_expected(one, answer) for one, answer in zip(asked, answers, strict=True)]


def _job(one: Asked) -> str:
    call = one.call.model_dump(mode="json")
    return json.dumps({"call": call, "seed": one.seed, "spread": one.spread, "limit": one.limit})


def _expected(one: Asked, answer: Answer | WorkerError) -> Expected:
    if isinstance(answer, WorkerUnusable):
        raise answer
    if isinstance(answer, WorkerError):
        return Expected(one.call, None, reason=_why(answer))
    sent: dict[str, Any] = decode(answer.outputs.tree, answer.outputs.tensors)
    call = OperatorCall.model_validate(json.loads(sent["call"])) if "call" in sent else None
    if "none" in sent:
        return Expected(call, None, reason=str(sent["none"]))
    return Expected(call, received(sent), sent["inputs"])


def _why(error: WorkerError) -> str:
    what = "fails"
    if isinstance(error, WorkerCrashed):
        what = "crashes"
    elif isinstance(error, WorkerTimeout):
        what = "does not return"
    return " ".join(f"the reference itself {what}: {error.message}".split())[:300]
