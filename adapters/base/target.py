"""What a stage may ask of a target. Every target runs behind a worker; see docs/worker-protocol.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .errors import WorkerError
from .operator_call import OperatorCall
from .target_spec import TargetSpec
from .values import Anomaly, Fingerprint, Value

if TYPE_CHECKING:
    from torch import Tensor

TARGET_API = 1
CAPABILITIES = (
    "op", "fragment", "parts", "observe", "grad", "model", "generate", "prompt_logprobs", "collectives",
)  # fmt: skip


class Device(Value):
    """One device as the stack sees it.

    Attributes:
        name: e.g. `NVIDIA H200` or the processor's name.
        memory_bytes: what the driver reports; 0 where it does not say.
    """

    name: str
    memory_bytes: int = 0


class TargetDescription(Value):
    """What `describe()` answers.

    Attributes:
        api: version of the target contract the worker speaks.
        capabilities: out of `CAPABILITIES`.
        dtypes: role (`weights`, `activations`, `collectives`) -> short names that work.
        devices: as many as the stack sees.
        fingerprint: of stack, driver and device.
        anomalies: what the stack said of itself, e.g. a package it lacks.
        torch_modules: what is to be imported beside torch so that torch itself runs an operator as the stack
            does; empty where torch needs nothing, or the stack runs operators in a way of its own.
        owner: who keeps the stack, as it says itself; empty where it does not.
    """

    api: int
    capabilities: Sequence[str]
    dtypes: Mapping[str, Sequence[str]]
    devices: Sequence[Device]
    fingerprint: Fingerprint
    anomalies: Sequence[Anomaly] = ()
    torch_modules: Sequence[str] = ()
    owner: str = ""


@dataclass(frozen=True)
class Fragment:
    """One node to prepare, by description: the module is built inside the worker.

    Attributes:
        node: transformers' module path; the representative of its kind.
        kind: digest of the graph.
        architecture: class to build, e.g. `LlamaForCausalLM`.
        config: config.json as JSON, quantisation taken out.
        dtype: short name of weights and activations.
        options: from the target, e.g. `{"attn": "eager", "experts": "grouped_mm"}`.
        varying: sizes in the example that stand for something that varies, such as its length; no other
            dimension of the example may have them. A stack that can compiles for all sizes at once.
    """

    node: str
    kind: str
    architecture: str
    config: Mapping[str, Any]
    dtype: str
    options: Mapping[str, str]
    varying: Sequence[int] = ()


class CompileReport(Value):
    """What a stack compiled under one handle so far, all shapes together.

    Attributes:
        graphs: how many times something was compiled.
        operators: name -> number in the graph that the compiler was given: `aten.mm.default`, `onnx.MatMul`,
            `opset1.MatMul`.
        kernels: what is executed in their place -> how many, by the stack's own names.
        breaks: why parts run uncompiled, in the compiler's words; empty where everything is compiled.
        fixed: why the graph serves the shapes of the example alone though others were asked for; else empty.
    """

    graphs: int = 0
    operators: Mapping[str, int] = {}
    kernels: Mapping[str, int] = {}
    breaks: Sequence[str] = ()
    fixed: str = ""


@dataclass(frozen=True)
class Call:
    """Arguments or results of one node call: a JSON tree and its tensors by name.

    The tree holds null, booleans, numbers, strings, lists, and marked objects: `{"$tensor": NAME}`,
    `{"$tuple": [...]}`, `{"$dict": {...}}`, `{"$dtype": "bf16"}`, `{"$state": true}` (the node's cache
    object, which lives in the worker), `{"$output": {...}}` (a dict-like model output).
    """

    tree: Any
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Answer:
    """What a run gave back.

    Attributes:
        outputs: of the node or operator.
        seconds: of the execution alone, device synchronised.
        peak_bytes: highest device memory during it (CPU: highest growth of the process); 0 if unknown.
        operators: implementation that ran where the stack chose one, e.g. `experts=grouped_mm`.
        anomalies: what the stack remarked.
    """

    outputs: Call
    seconds: float
    peak_bytes: int
    operators: Mapping[str, str]
    anomalies: Sequence[Anomaly]


@dataclass(frozen=True)
class ObservedOperator:
    """One operator as a run called it.

    Attributes:
        call: name, arguments, dtypes and shapes; `module` is the path of the innermost running module inside
            the one that was run, empty for that one itself.
        inputs: the call's tensors by alias, on the CPU; None where the values were left out.
        outputs: tensors and numbers of the result in order; None where the operator raised.
        slots: number of each input and then of each tensor among the outputs, equal where two operators had
            the same tensor in memory; empty where that was not noted.
    """

    call: OperatorCall
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Any] | None
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class Observation:
    """What a run did, operator by operator.

    Attributes:
        outputs: of the run; None where it raised.
        operators: in the order in which they were dispatched while the node's module ran.
        error: what it raised, in a line; else empty.
        left_out: tensors whose values did not fit the limit.
    """

    outputs: Call | None
    operators: Sequence[ObservedOperator]
    error: str = ""
    left_out: int = 0


@dataclass(frozen=True, eq=False)
class TopK:
    """One choice of the largest that a router made.

    Attributes:
        scores: [..., n] that were chosen from, tokens first.
        k: how many were chosen.
        ids: [..., k] of the chosen.
    """

    scores: Tensor
    k: int
    ids: Tensor


@dataclass(frozen=True, eq=False)
class Paused:
    """A run of a node that stands still where its experts are called, until `resume` brings their output.

    Attributes:
        key: names the run; whoever answered gave it.
        hidden: [T, H], what the experts are given.
        ids: [T, k] of the chosen experts; the number of experts stands for none.
        weights: [T, k] of the choices.
        scores: choices that the router made since the run was started or resumed, in order; the last is that
            of the experts where the router chooses them last. Of an arm of the reference only.
        measured: the part of the run up to here, its `outputs` left empty; of a target only.
    """

    key: str
    hidden: Tensor
    ids: Tensor
    weights: Tensor
    scores: Sequence[TopK] = ()
    measured: Answer | None = None


@dataclass(frozen=True)
class TrainingStep:
    """One step of training as a target made it, all tensors on the CPU.

    Attributes:
        losses: [sequences, length - 1], cross entropy of each next token, nats.
        gradients: parameter -> its gradient, where it has one.
        weights: parameter or saved buffer -> its values after the step.
        routed: path of experts -> [tokens, k], ids of the experts that its tokens were sent to.
    """

    losses: Tensor
    gradients: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    routed: Mapping[str, Tensor]


@dataclass(frozen=True)
class LoadReport:
    """What the target's own loader said of a checkpoint folder.

    Attributes:
        missing: parameters the model has and the checkpoint lacks.
        unexpected: tensors the checkpoint has and the model lacks.
        mismatched: `NAME: shape in checkpoint, shape in model`.
        seconds: wall time.
        weight_bytes: of the parameters as loaded.
    """

    missing: Sequence[str]
    unexpected: Sequence[str]
    mismatched: Sequence[str]
    seconds: float
    weight_bytes: int


@dataclass(frozen=True)
class Generation:
    """A greedy continuation.

    Attributes:
        tokens: new token ids, per sequence.
        first_token_seconds: from the call to the first new token.
        seconds: of the whole.
        peak_bytes: highest memory of the worker or device meanwhile.
    """

    tokens: Sequence[Sequence[int]]
    first_token_seconds: float
    seconds: float
    peak_bytes: int


class Target(Protocol):
    """One stack on a device, behind a worker. All methods may raise `WorkerError` and `UnsupportedError`.

    Attributes:
        spec: as the person named it.
        timeout: seconds that one call may take before the worker is killed (WorkerTimeout).
    """

    spec: TargetSpec
    timeout: float

    def describe(self) -> TargetDescription:
        """Capabilities, dtypes, devices and fingerprint; asked once, then remembered."""
        ...

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        """Builds one kind; `mode` is `prefill` or `decode`. Returns the handle for `run`."""
        ...

    def run(
        self,
        handle: str,
        node: str,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        state: str | None = None,
    ) -> Answer:
        """Runs one node of the prepared kind.

        Args:
            handle: from `prepare`.
            node: which node of that kind.
            weights: parameter -> expression whose leaves are `{"file": PATH, "offset": O, "dtype": D,
                "shape": S}` (read by the worker itself) or `{"value": TENSOR}`; empty: those of the node's
                last run, which are kept until another node runs with weights of its own.
            inputs: the node's arguments.
            state: name of the sequence whose cache the worker keeps for this node; None: no cache.
        """
        ...

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
        """Runs one node as `run` does and says which operators that called, with their tensors.

        Args:
            handle: see `run`, and so are the next ones.
            node: see there.
            weights: see there.
            inputs: see there.
            state: see there.
            limit: bytes of tensors beyond which values are left out.
        """
        ...

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
        """Runs one node up to its experts; needs the capability `parts`. Any number of runs may stand still.

        Args:
            handle: see `run`.
            node: see `run`.
            weights: as of `run`, but without the experts' parameters; empty: those of the last run of this
                node that stood still. Weights of another node end all runs that stand still.
            inputs: see `run`.
            pause: module path of the experts inside the node, e.g. `mlp.experts`.
            state: see `run`.

        Returns:
            `Paused`, or the node's answer where it never calls the experts.
        """
        ...

    def resume(self, key: str, output: Tensor) -> Answer | Paused:
        """Goes on with the experts' output [T, H]; `Paused` where the node calls them again."""
        ...

    def run_experts(
        self,
        handle: str,
        node: str,
        experts: str,
        weights: Mapping[str, Any],
        hidden: Tensor,
        ids: Tensor,
        chosen: Tensor,
    ) -> Answer:
        """Runs a node's experts alone, through the implementation that the target's options chose.

        Args:
            handle: from `prepare`.
            node: whose experts.
            experts: their module path inside the node.
            weights: parameter of the experts -> expression of its stack [n, ...] of the n experts that are
                there; always needed, never kept.
            hidden: [T, H].
            ids: [T, k] out of 0 to n - 1; n stands for none.
            chosen: [T, k] weights of the choices.
        """
        ...

    def forget(self, state: str) -> None:
        """Drops the caches of a sequence."""
        ...

    def drop(self, keys: Sequence[str] | None = None) -> None:
        """Ends runs that stand still, all where no keys are given."""
        ...

    def report(self, handle: str) -> CompileReport:
        """What the stack compiled under a handle; a RemoteError `unsupported` where it compiles nothing."""
        ...

    def run_op(self, call: OperatorCall, tensors: Sequence[Tensor]) -> Answer:
        """Runs one operator on the given tensor arguments (in order of their `alias` numbers)."""
        ...

    def run_ops(
        self, calls: Sequence[OperatorCall], tensors: Sequence[Sequence[Tensor]]
    ) -> Sequence[Answer | WorkerError]:
        """Runs operators that do not depend on each other, an exporting stack as one graph where it can.

        An operator that fails leaves its error in its place: a `RemoteError`, or what became of the worker
        where it died of this one. The others run all the same. An answer's anomaly `cpu_fallback` says that
        the stack moved the operator to the host (evidence: its words). Operators that one graph ran share
        its seconds equally.

        Raises:
            WorkerUnusable: no worker starts at all.
        """
        ...

    def load(self, folder: str, *, dtype: str) -> LoadReport:
        """Loads a checkpoint folder by the stack's own loader; `score` and `generate` use it."""
        ...

    def train(self, fragment: Fragment, weights: Mapping[str, Any], step: Mapping[str, Any]) -> TrainingStep:
        """Makes one step of training: loss of the next token, backward, optimiser.

        Args:
            fragment: the whole model; `node` and `kind` mean nothing.
            weights: full name of a parameter or saved buffer -> expression, see `run`.
            step: `tied` (name -> name whose tensor it shares), `experts` (paths whose choices are told),
                `tokens` (sequences of equal length) and `settings` of AdamW (`lr`, `beta1`, `beta2`, `eps`,
                `weight_decay`).
        """
        ...

    def score(self, tokens: Sequence[Sequence[int]]) -> Answer:
        """Logits [batch, length, vocabulary] of the loaded model, teacher-forced."""
        ...

    def generate(self, tokens: Sequence[Sequence[int]], *, new_tokens: int) -> Generation:
        """Greedy continuation by the loaded model."""
        ...

    def launch(self, world_size: int, job: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Runs a named job on that many ranks and returns each rank's result."""
        ...

    def close(self) -> None:
        """Ends the worker and everything it started."""
        ...
