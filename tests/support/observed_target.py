"""Any stack called in this process, observed and asked for single operators as its worker would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.errors import RemoteError, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, Call, Fragment, Observation, TargetDescription, TrainingStep
from day0.adapters.targets.eager import EagerStack
from day0.adapters.targets.observation import as_observation
from day0_worker import NodeRun, failures, trees
from day0_worker.observed import Observer
from day0_worker.operators import decode_call
from day0_worker.training import TrainJob
from day0_worker.weights import LazyWeights, evaluate
from support.in_process_target import InProcessTarget


class ObservedTarget(InProcessTarget):
    """Answers as a worker with the stack would; whatever the stack raises is a `RemoteError`.

    Args:
        text: the target.
        stack: its class.
    """

    def __init__(self, text: str, stack: type[EagerStack] = EagerStack) -> None:
        self._class = stack
        super().__init__(text)

    def _start(self) -> None:
        super()._start()
        self._stack = self._class(self.spec.device, 1, self.spec.dtype, self.spec.options)

    def describe(self) -> TargetDescription:
        said = super().describe()
        return said.model_copy(update={"capabilities": self._stack.offered()})

    def run(self, *args: Any, **kwargs: Any) -> Answer:
        try:
            return super().run(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            raise _remote(error) from error

    def observe(
        self,
        handle: str,
        node: str,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        state: str | None = None,
        limit: int,
    ) -> Observation:
        args, kwargs = trees.decode_arguments(inputs.tree, inputs.tensors)
        tensors = {name: evaluate(expression, {}) for name, expression in weights.items()}
        observer, said = Observer(limit, self.spec.device), dict[str, Any]()
        outputs: dict[str, torch.Tensor] = {}
        try:
            with observer:
                value = self._stack.run(NodeRun(handle, node, tensors, args, kwargs, state))
            tree, outputs = trees.encode(value)
            said["tree"] = tree
        except (RuntimeError, NotImplementedError) as error:
            said["error"] = failures.answer(error)
        said.update(operators=observer.operators, left_out=observer.left_out)
        return as_observation(said, {**outputs, **observer.contents})

    def train(self, fragment: Fragment, weights: Mapping[str, Any], step: Mapping[str, Any]) -> TrainingStep:
        job = TrainJob(
            fragment.architecture,
            fragment.config,
            fragment.dtype,
            fragment.options,
            LazyWeights(weights, {}),
            **step,
        )
        try:
            made = self._stack.train(job)
        except (RuntimeError, NotImplementedError) as error:
            raise _remote(error) from error
        return TrainingStep(made.losses, made.gradients, made.weights, made.routed)

    def run_op(self, call: OperatorCall, tensors: Sequence[torch.Tensor]) -> Answer:
        try:
            args, kwargs = decode_call(call.model_dump(mode="json"), list(tensors))
            value = self._stack.run_op(call.op, args, kwargs)
        except (RuntimeError, NotImplementedError) as error:
            raise _remote(error) from error
        return Answer(Call(*trees.encode(value)), 0.0, 0, {}, ())

    def run_ops(
        self, calls: Sequence[OperatorCall], tensors: Sequence[Sequence[torch.Tensor]]
    ) -> Sequence[Answer | WorkerError]:
        answers: list[Answer | WorkerError] = []
        for call, inputs in zip(calls, tensors, strict=True):
            try:
                answers.append(self.run_op(call, inputs))
            except WorkerError as error:
                answers.append(error)
        return answers


def _remote(error: BaseException) -> RemoteError:
    said = failures.answer(error)
    return RemoteError(said["message"], kind=said["kind"], type_name=said["type"])
