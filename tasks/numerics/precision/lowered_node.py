"""Runs of one node in which some of its roles are held in a lower precision, its weights read once for all.

Bound: the node's weights in the reference's precision and in the target's, those of the lowered roles once
more, of its experts one chunk in each of these, and what the runs that stand still at the experts hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call, Paused
from day0.adapters.models.node_weights import NodeWeights

from ...reference_arm import Arm, ArmError
from ..walk.expert_runs import Waiting, through_experts
from .fake_precision import Scheme, rounded
from .lowerings import LOWERINGS, Lowering
from .products import Loaded, Products

Choice = Mapping[str, str]
"""Role -> short name of the precision in which it is held; roles that are not in it stay as they are."""


@dataclass(frozen=True)
class Job:
    """One run of the node.

    Attributes:
        choice: precisions of roles.
        call: arguments.
        done: takes the output, at once, so that no more than one has to be held.
        failed: takes the error where the run may fail; None: it is raised.
        base: whether the arm of the target's precision runs it, in which case nothing else is lowered.
    """

    choice: Choice
    call: Call
    done: Callable[[Call], None]
    failed: Callable[[Day0Error], None] | None = None
    base: bool = False


@dataclass(frozen=True)
class Parts:
    """The parameters of a node.

    Attributes:
        roles: parameter -> role.
        vectors: roles that have no matrix anywhere in the model.
        axes: parameter -> axis that products sum over, as seen so far; the same for all nodes of a kind.
    """

    roles: Mapping[str, str]
    vectors: frozenset[str]
    axes: dict[str, int]

    def scheme(self, name: str, choice: Choice) -> Scheme | None:
        """How a parameter is held; None: as it was."""
        role = self.roles.get(name, "")
        lowering = self.lowering(name, choice)
        return lowering.scheme(self.axes.get(name), alone=role in self.vectors) if lowering else None

    def inputs(self, choice: Choice) -> dict[str, Scheme]:
        """Parameter -> how tokens are rounded that are multiplied with it."""
        found = {name: self.lowering(name, choice) for name in self.roles}
        return {name: lowering.inputs for name, lowering in found.items() if lowering is not None}

    def lowering(self, name: str, choice: Choice) -> Lowering | None:
        """The precision that was chosen for a parameter's role."""
        return LOWERINGS.get(choice.get(self.roles.get(name, ""), ""))

    def lowered(self, name: str, tensor: Tensor, choice: Choice) -> Tensor:
        """A parameter as it is held."""
        scheme = self.scheme(name, choice) if tensor.is_floating_point() else None
        return tensor if scheme is None else rounded(tensor, scheme, self.axes.get(name, -1))


class LoweredNode:
    """One node while its weights are there.

    Args:
        node: of the skeleton.
        weights: of it, without its experts' where these are handed out.
        oracle: runs it in the reference's precision.
        base: runs it in the target's.
        parts: its parameters.
        chunk: experts that are in memory at a time.
    """

    def __init__(
        self, node: Node, weights: NodeWeights, oracle: Arm, base: Arm, parts: Parts, chunk: int
    ) -> None:
        self._node, self._weights, self._parts, self._chunk = node, weights, parts, chunk
        self._oracle, self._base = oracle, base
        self._exact: dict[str, Tensor] = {}
        self._now: dict[bool, Choice | None] = {False: None, True: None}
        self._loaded = Loaded(parts.axes)
        self._experts: dict[str, _Experts] = {}

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs the jobs in their order; the first, with nothing lowered, shows what products there are.

        Raises:
            ArmError: a job failed that may not.
            CheckpointError: weights cannot be read.
        """
        dtypes = self._oracle.dtypes(self._node)
        self._exact = {name: _own(t.to(dtypes[name])) for name, t in self._weights.exact().items()}
        try:
            waiting: list[tuple[Job, Paused]] = []
            for job in jobs:
                self._advance(job, partial(self._start, job), waiting)
            while waiting:
                waiting = self._past_experts(waiting)
        finally:
            self._oracle.free(self._node)
            self._base.free(self._node)
            self._exact = {}

    def _start(self, job: Job, arm: Arm) -> Call | Paused:
        return arm.start(self._node, job.call, around=self._around(job))

    def _past_experts(self, waiting: Sequence[tuple[Job, Paused]]) -> list[tuple[Job, Paused]]:
        runs = [
            Waiting(self._base, paused, "lowered") if job.base else Waiting(self._side(job), paused, "exact")
            for job, paused in waiting
        ]
        outputs = through_experts(
            self._node,
            runs,
            self._weights.experts,
            chunk=self._chunk,
            prefetch=self._weights.prefetch_experts,
        )
        further: list[tuple[Job, Paused]] = []
        for (job, paused), output in zip(waiting, outputs, strict=True):
            if isinstance(output, Day0Error):
                self._fail(job, output)
            else:
                self._advance(job, partial(_resume, paused, output), further)
        return further

    def _advance(
        self, job: Job, step: Callable[[Arm], Call | Paused], waiting: list[tuple[Job, Paused]]
    ) -> None:
        try:
            arm = self._place(job)
            came = step(arm)
        except ArmError as error:
            self._fail(job, error)
            return
        if isinstance(came, Paused):
            waiting.append((job, came))
        else:
            job.done(came)

    def _fail(self, job: Job, error: Day0Error) -> None:
        if job.failed is None:
            raise error
        job.failed(error)

    def _place(self, job: Job) -> Arm:
        """The arm with the weights of the job; weights that are there already stay."""
        arm = self._base if job.base else self._oracle
        if self._now[job.base] != job.choice:
            if job.base:
                arm.load(self._node, self._weights.lowered())
            else:
                lowered = {name: self._parts.lowered(name, t, job.choice) for name, t in self._exact.items()}
                arm.load(self._node, lowered)
                self._loaded.put(arm.parameters(self._node))
            self._now[job.base] = job.choice
        return arm

    def _around(self, job: Job) -> Callable[[], AbstractContextManager[Any]]:
        """What is entered in the run's own thread."""
        inputs = {} if job.base else self._parts.inputs(job.choice)
        loaded = Loaded() if job.base else self._loaded
        return lambda: Products(loaded, inputs)

    def _side(self, job: Job) -> _Experts:
        """One for each precision of the experts, so that a chunk is rounded once for all its runs."""
        choice = {role: dtype for role, dtype in job.choice.items() if role == "expert"}
        key = choice.get("expert", "")
        return self._experts.setdefault(key, _Experts(self._oracle, self._parts, choice))


class _Experts:
    """Runs experts in one precision; see `day0.tasks.numerics.walk.expert_runs.Side`."""

    def __init__(self, arm: Arm, parts: Parts, choice: Choice) -> None:
        self._arm, self._parts, self._choice = arm, parts, choice

    def run_experts(
        self, node: Node, stack: Mapping[str, Any], hidden: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """See `day0.tasks.numerics.walk.expert_runs.Side`."""
        dtypes = self._arm.dtypes(node)
        names = {name: f"{node.experts}.{name}" for name in stack}
        held = {
            name: self._parts.lowered(full, _own(stack[name].to(dtypes[full])), self._choice)
            for name, full in names.items()
        }
        loaded = Loaded(self._parts.axes)
        loaded.put({full: held[name] for name, full in names.items()})
        with Products(loaded, self._parts.inputs(self._choice)):
            return self._arm.run_experts(node, held, hidden, ids, weights)


def _resume(paused: Paused, output: Tensor, arm: Arm) -> Call | Paused:
    return arm.resume(paused, output)


def _own(tensor: Tensor) -> Tensor:
    """The tensor with a storage that it shares with no other, by which it is known."""
    storage = tensor.untyped_storage()
    return tensor if storage.nbytes() == tensor.numel() * tensor.element_size() else tensor.clone()
