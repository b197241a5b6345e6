"""The contract of a stack, which runs inside the worker: derive from `Stack`, override what differs."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence

from day0_worker.batches import OperatorJob, OperatorResult, one_by_one
from day0_worker.measure import Measure
from day0_worker.workarounds import Ways

if TYPE_CHECKING:
    import torch

    from day0_worker.training import Trained, TrainJob

STACK_API = 1

ERROR_KINDS = (
    "missing_operator",  # the stack has no kernel for this operator
    "dtype",  # it has one, but not for these dtypes
    "shape",  # it has one, but not for these shapes or attributes
    "key_mismatch",  # the loader's names or shapes do not fit the checkpoint
    "double_fault",  # the operator fell back to the host, which has no kernel for it either
    "memory",  # the device or process ran out of memory
    "import",  # a package that the stack needs is not there
    "unsupported",  # the stack does not claim to do this
    "runtime",  # anything else
)


class StackError(Exception):
    """An error with a kind out of `ERROR_KINDS`; any other exception is classified by its text."""

    def __init__(self, message: str, kind: str = "runtime") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class NodeRun:
    """Everything one run of a node needs, decoded.

    Attributes:
        handle: what `prepare` returned.
        node: transformers' module path of the node.
        weights: parameter name inside the node -> tensor on the CPU in the dtype of the checkpoint; None
            where the node's weights of the last run are to be used again.
        args: positional arguments.
        kwargs: keyword arguments.
        state: name of the sequence whose cache belongs to this run, or None.
        pause: module path inside the node of experts; the run stands still where they are called, and their
            parameters are not among the weights. The worker makes this run in a thread of its own.
        experts: module path inside the node of experts that are all that is to be run; weights are those of
            their parameters, stacks of as many experts as are there, args hidden states, ids and weights.
    """

    handle: str
    node: str
    weights: Optional[Mapping[str, "torch.Tensor"]]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    state: Optional[str]
    pause: str = ""
    experts: str = ""


class Stack:
    """Base of all stacks. A method that is not overridden answers that the stack does not claim to do this.

    Args:
        device: torch device type from the target grammar, e.g. `cuda`.
        count: number of devices asked for.
        dtype: short dtype name or None.
        options: what follows `?` in the target.

    Attributes:
        name: of the stack, as in the target grammar.
        api: version of the target contract that the class was written for.
        capabilities: out of the words of docs/worker-protocol.md; claim only what truly works.
        reference: `module:Class` under which the worker loaded it; set by the worker.
        sources: folder with the modules that the parent sent; set by the worker.
        threads: of the process right after its imports; set by the worker.
        owner: who keeps the stack and where to write to them; empty: what its package's metadata say.
        torch_modules: what a script has to import beside torch so that torch knows the device, e.g.
            `acme_torch`; empty: the module of the stack's class, which needs Day0.
        ways: ways around that the target names; a stack takes operators from them and runs nodes, models and
            exports inside of them.
        run_may_stand_still: whether `run`, though the class overrides it, heeds `pause` and `experts` of its
            job, and another run may begin and end before the first goes on.
        patience: seconds that one step of `run_ops` may take before the worker ends itself; 0: for ever.
    """

    name = ""
    api = STACK_API
    capabilities: Sequence[str] = ()
    owner = ""
    torch_modules: Sequence[str] = ()
    reference = ""
    sources = ""
    threads = 0
    run_may_stand_still = False
    patience = 0.0

    def __init__(self, device: str, count: int, dtype: Optional[str], options: Mapping[str, str]) -> None:
        self.device = device
        self.count = count
        self.dtype = dtype
        self.options = dict(options)
        self.ways = Ways(options)
        self.begin_call()

    def begin_call(self) -> None:
        """The worker calls it before each request: what the stack remarked and measured starts anew."""
        self.measure = Measure()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.manual_seed(0)
        self._operators: Dict[str, str] = {}
        self._anomalies: List[Dict[str, str]] = []

    def end_call(self) -> Dict[str, Any]:
        """What the answer carries beside the result."""
        return {
            "seconds": self.measure.seconds,
            "peak_bytes": max(0, self.measure.peak_bytes),
            "operators": self._operators,
            "anomalies": self._anomalies,
        }

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Around the execution alone, without transfers and conversions; else the whole call is measured."""
        with self.measure.span(self.device):
            yield

    def used(self, choice: str, implementation: str) -> None:
        """Names the implementation that ran where the stack chose one, e.g. `experts`, `grouped_mm`."""
        self._operators[choice] = implementation

    def remark(self, code: str, subject: str, message: str, evidence: str = "") -> None:
        """Adds an anomaly to the answer: something a person should know that is not an error."""
        self._anomalies.append({"code": code, "subject": subject, "message": message, "evidence": evidence})

    def describe(self) -> Dict[str, Any]:
        """Capabilities, dtypes per role, devices and fingerprint, as in docs/worker-protocol.md."""
        raise StackError(f"{self.name} does not describe itself", "unsupported")

    def prepare(self, fragment: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: str,
                weights: str) -> str:  # fmt: skip
        """Builds one kind from its description and example arguments; returns a handle."""
        raise StackError(f"{self.name} does not run fragments", "unsupported")

    def run(self, job: NodeRun) -> Any:
        """Runs one node and returns its output as the module would."""
        raise StackError(f"{self.name} does not run fragments", "unsupported")

    def report(self, handle: str) -> Dict[str, Any]:
        """What was compiled under a handle: `graphs`, `operators`, `kernels`, `breaks`, `fixed`."""
        raise StackError(f"{self.name} does not compile", "unsupported")

    def forget(self, state: str) -> None:
        """Drops the cache of a sequence; unknown names are ignored."""

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs one operator on CPU tensors and returns its outputs."""
        raise StackError(f"{self.name} does not run single operators", "unsupported")

    def run_ops(self, jobs: Sequence[OperatorJob]) -> List[OperatorResult]:
        """Runs operators that do not depend on each other; one result each, errors in their places.

        A stack that compiles or exports overrides it with `day0_worker.batches.in_one_graph`.
        """
        return one_by_one(self, jobs)

    def load(self, folder: str, dtype: str) -> Dict[str, Any]:
        """Loads a checkpoint folder by the stack's own loader; says missing, unexpected, mismatched keys."""
        raise StackError(f"{self.name} does not load checkpoints", "unsupported")

    def train(self, job: "TrainJob") -> "Trained":
        """Makes one step of training and says what became of loss, gradients and weights."""
        raise StackError(f"{self.name} does not train", "unsupported")

    def score(self, tokens: List[List[int]]) -> Any:
        """Logits [batch, length, vocabulary] of the loaded model."""
        raise StackError(f"{self.name} does not score", "unsupported")

    def generate(self, tokens: List[List[int]], new_tokens: int) -> Dict[str, Any]:
        """Greedy continuation: tokens, first_token_seconds, seconds, peak_bytes."""
        raise StackError(f"{self.name} does not generate", "unsupported")

    def join(self, rank: int, world_size: int) -> str:
        """Makes a rank's process ready before its job and names the device it computes on."""
        if self.device == "cpu":
            return "cpu"
        import torch

        index = rank % torch.accelerator.device_count()
        torch.accelerator.set_device_index(index)
        return f"{self.device}:{index}"

    def launch(self, world_size: int, job: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """Runs a job of `day0_worker.ranks` on that many ranks."""
        raise StackError(f"{self.name} does not run collectives", "unsupported")
