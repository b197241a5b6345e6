"""The eager stack called in this process, with the faults that a test asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.base.errors import RemoteError, WorkerCrashed
from day0.adapters.base.target import (
    Answer,
    Call,
    Device,
    Fragment,
    Generation,
    LoadReport,
    Paused,
    TargetDescription,
)
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.eager import EagerStack
from day0.adapters.targets.sent_weights import SentWeights
from day0_worker import NodeRun, StackError, parts, trees
from day0_worker.weights import evaluate

Fault = Callable[[torch.Tensor], torch.Tensor]
_NUMBERS = itertools.count()


def scaled(factor: float) -> Fault:
    """A fault that multiplies the output."""
    return lambda tensor: tensor * factor


def dies(tensor: torch.Tensor) -> torch.Tensor:
    """A fault that takes the worker with it."""
    raise WorkerCrashed("the worker died by signal 11", log=["Fatal Python error: Segmentation fault"])


def lacks_an_operator(tensor: torch.Tensor) -> torch.Tensor:
    """A fault that names an operator."""
    raise RemoteError(
        "Could not run 'aten::silu.out' with arguments from the 'Faulty' backend",
        kind="missing_operator",
        type_name="NotImplementedError",
    )


class InProcessTarget:
    """Answers as a worker with the eager stack would.

    Args:
        text: the target, e.g. `eager@cpu/bf16`.
        faults: node name -> what happens to its output.
        capabilities: that it claims.

    Attributes:
        runs: node names, in the order in which they were run.
    """

    def __init__(
        self,
        text: str,
        faults: Mapping[str, Fault] | None = None,
        capabilities: Sequence[str] = ("fragment", "parts", "model", "generate"),
    ) -> None:
        self.spec = TargetSpec.parse(text)
        self.timeout = 60.0
        self.faults = dict(faults or {})
        self.capabilities = capabilities
        self.runs: list[str] = []
        self._identity = f"number {next(_NUMBERS)}" if self.faults else "none"
        self._start()

    def describe(self) -> TargetDescription:
        return TargetDescription(
            api=1,
            capabilities=self.capabilities,
            dtypes={"weights": ["bf16", "fp32"], "activations": ["bf16", "fp32"], "collectives": []},
            devices=[Device(name="cpu")],
            fingerprint=Fingerprint(family="eager", exact={"faults": self._identity}),
        )

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        args, kwargs = trees.decode_arguments(example.tree, example.tensors)
        return self._stack.prepare(vars(fragment), args, kwargs, mode, weights)

    def run(
        self, handle: str, node: str, weights: Mapping[str, Any], inputs: Call, *, state: str | None = None
    ) -> Answer:
        self.runs.append(node)
        args, kwargs = trees.decode_arguments(inputs.tree, inputs.tensors)
        tensors = _evaluated(weights) or None
        try:
            output = self._stack.run(NodeRun(handle, node, tensors, args, kwargs, state))
        except StackError as error:
            raise RemoteError(str(error), kind=error.kind, type_name="StackError") from error
        return self._answer(node, output)

    def _answer(self, node: str, output: Any) -> Answer:
        if node in self.faults:
            try:
                output = _changed(output, self.faults[node])
            except WorkerCrashed:
                self.close()
                self._start()
                raise
        return Answer(Call(*trees.encode(output)), 0.001, 1000, {}, ())

    def start(
        self,
        handle: str,
        node: str,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        pause: str,
        state: str | None = None,
    ) -> Answer | Paused:
        self.runs.append(node)
        args, kwargs = trees.decode_arguments(inputs.tree, inputs.tensors)
        tensors = _evaluated(weights) or None
        job = NodeRun(handle, node, tensors, args, kwargs, state, pause=pause)
        return self._came(node, lambda: self._standing.start(lambda: self._stack.run(job)))

    def resume(self, key: str, output: torch.Tensor) -> Answer | Paused:
        return self._came(self._nodes[key], lambda: self._standing.resume(key, output))

    def _came(self, node: str, go: Callable[[], Any]) -> Answer | Paused:
        try:
            value = go()
        except StackError as error:
            raise RemoteError(str(error), kind=error.kind, type_name="StackError") from error
        if not isinstance(value, parts.Paused):
            return self._answer(node, value)
        self._nodes[value.key] = node
        measured = Answer(Call(None, {}), 0.001, 1000, {}, ())
        return Paused(value.key, value.hidden, value.ids, value.weights, measured=measured)

    def run_experts(
        self,
        handle: str,
        node: str,
        experts: str,
        weights: Mapping[str, Any],
        hidden: torch.Tensor,
        ids: torch.Tensor,
        chosen: torch.Tensor,
    ) -> Answer:
        tensors = _evaluated(weights)
        job = NodeRun(handle, node, tensors, [hidden, ids, chosen], {}, None, experts=experts)
        return self._came("", lambda: self._stack.run(job))  # type: ignore[return-value]  # it does not pause

    def drop(self, keys: Sequence[str] | None = None) -> None:
        self._standing.drop(keys)

    def forget(self, state: str) -> None:
        self._stack.forget(state)

    def load(self, folder: str, *, dtype: str) -> LoadReport:
        said = self._stack.load(folder, dtype)
        names = ("missing", "unexpected", "mismatched", "seconds", "weight_bytes")
        return LoadReport(**{name: said[name] for name in names})

    def generate(self, tokens: Sequence[Sequence[int]], *, new_tokens: int) -> Generation:
        said = self._stack.generate([list(row) for row in tokens], new_tokens)
        return Generation(said["tokens"], said["first_token_seconds"], said["seconds"], 0)

    def report(self, handle: str) -> Any:
        raise NotImplementedError

    def observe(self, *_: Any, **named: Any) -> Any:
        raise NotImplementedError

    def run_ops(self, *_: Any) -> Any:
        raise NotImplementedError

    def run_op(self, *_: Any) -> Answer:
        raise NotImplementedError

    def score(self, *_: Any) -> Answer:
        raise NotImplementedError

    def train(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def launch(self, *_: Any) -> Sequence[Mapping[str, Any]]:
        raise NotImplementedError

    def close(self) -> None:
        self._standing.drop()

    def _start(self) -> None:
        self._stack = EagerStack(self.spec.device, 1, self.spec.dtype, self.spec.options)
        self._standing = parts.PausedRuns()
        self._nodes: dict[str, str] = {}


def _evaluated(weights: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Expressions as a worker that sees all files would have them."""
    sender, values = SentWeights(lambda files: [file["path"] for file in files]), dict[str, torch.Tensor]()
    sent = {name: sender.sent(expression, values) for name, expression in weights.items()}
    return {name: evaluate(expression, values) for name, expression in sent.items()}


def _changed(output: Any, fault: Fault) -> Any:
    if isinstance(output, torch.Tensor):
        return fault(output)
    return type(output)([fault(output[0]), *output[1:]])
