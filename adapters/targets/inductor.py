"""Torch with its compiler: nodes and operators through inductor, the rest as eager does it."""

from __future__ import annotations

import importlib
import shutil
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun
from day0_worker.batches import OperatorJob, OperatorResult, in_one_graph
from day0_worker.executable import Executable, words
from day0_worker.inductor_graphs import counting_backend
from day0_worker.lifted import LiftedNode, LiftedNodes
from day0_worker.one_operator import ManyOperators, OneOperator
from day0_worker.operator_graphs import Run, run_as_graph

_COMPILED_KINDS = 4096


class InductorStack(EagerStack):
    """Each kind is compiled once, weights and cache lifted out, and serves all its nodes."""

    name = "inductor"
    engine = "inductor"
    packages = ("transformers", "safetensors", "triton")

    def __init__(self, device: str, count: int, dtype: Optional[str], options: Mapping[str, str]) -> None:
        super().__init__(device, count, dtype, options)
        self._nodes = LiftedNodes(self, self.shelf, self._compile)
        self._compiled_model: Any = None
        self._last_operator: Tuple[str, Any] = ("", None)
        if self.ways.table():
            known = importlib.import_module("torch._inductor.decomposition").decompositions
            known.update(self.ways.table(known))

    def offered(self) -> List[str]:
        """See `EagerStack`; `generate` is left out: each new length would compile anew.

        So are `observe` (what runs is compiled, operators are nowhere called) and `grad`.
        """
        if self.device == "cpu" and not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
            self.remark("no_compiler", self.name, "there is no C++ compiler, which inductor needs on a CPU")
            return [word for word in super().offered() if word == "collectives"]
        return [word for word in super().offered() if word not in ("generate", "observe", "grad")]

    def prepare(self, fragment: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: str,
                weights: str) -> str:  # fmt: skip
        """See `Stack`."""
        return self._nodes.prepare(fragment, args, kwargs, mode, weights)

    def run(self, job: NodeRun) -> Any:
        """See `Stack`."""
        return self._nodes.run(job)

    def forget(self, state: str) -> None:
        """See `Stack`."""
        self._nodes.forget(state)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See `Stack`; compiles the one operator (2 to 10 s), unless the last call was its like."""
        placed, named = self.to_device([list(args), dict(kwargs)])
        signature = OneOperator(self.ways.operator(op), placed, named).signature
        last, compiled = self._last_operator
        with torch.no_grad():
            if signature != last:
                torch.compiler.reset()
                made: Any = torch.compile(self.ways.operator(op), dynamic=False)
                made(*_copies(placed), **_copies(named))
                compiled = made
                self._last_operator = (signature, made)
            with self.timed():
                return compiled(*placed, **named)

    def run_ops(self, jobs: Sequence[OperatorJob]) -> List[OperatorResult]:
        """See `Stack`; compiles one graph of all."""
        return in_one_graph(self, jobs, self._run_graph)

    def _run_graph(self, jobs: Sequence[OperatorJob]) -> List[Any]:
        placed = [
            OperatorJob(job.index, job.op, *self.to_device([list(job.args), dict(job.kwargs)]))
            for job in jobs
        ]
        self._last_operator = ("", None)
        with torch.no_grad():
            return run_as_graph(self, placed, _compiled)

    def load(self, folder: str, dtype: str) -> Dict[str, Any]:
        """See `Stack`; loads as eager does, scores with the compiled model."""
        report = super().load(folder, dtype)
        self._compiled_model = torch.compile(self.loaded_model())
        return report

    def score(self, tokens: List[List[int]]) -> Any:
        """See `Stack`."""
        self.loaded_model()
        with torch.no_grad():
            return self._compiled_model(
                input_ids=torch.tensor(tokens, device=self.device), use_cache=False
            ).logits

    def report(self, handle: str) -> Dict[str, Any]:
        """See `Stack`."""
        return self._nodes.report(handle)

    def _compile(
        self, node: LiftedNode, inputs: List[torch.Tensor], names: List[str], dims: List[List[int]]
    ) -> Executable:
        # One code object serves all kinds and shapes, and each is compiled once, so the limit guards
        # nothing here.
        torch._dynamo.config.recompile_limit = _COMPILED_KINDS
        made = Executable(lambda given: given, graphs=0)
        placed = self.to_device(inputs)
        for tensor, varying in zip(placed, dims):  # noqa: B905  # one for each; Python 3.9 has no strict
            for dim in varying:
                torch._dynamo.maybe_mark_dynamic(tensor, dim)
        dynamic = None if any(dims) else False
        backend = counting_backend(made)
        compiled = torch.compile(node, backend=backend, dynamic=dynamic, fullgraph=True)
        try:
            # The first call compiles; on empty weights, whose values do not matter.
            compiled(*placed)
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
            made.breaks.append(words(error))
            self.remark("graph_break", "", "a part of the node runs uncompiled", made.breaks[-1])
            compiled = torch.compile(node, backend=backend, dynamic=dynamic)
            compiled(*placed)
        made.run = lambda given: list(compiled(*self.to_device(given)))
        return made


def _compiled(many: ManyOperators, inputs: List[torch.Tensor]) -> Run:
    torch.compiler.reset()
    compiled: Any = torch.compile(many, dynamic=False)
    compiled(*inputs)
    return lambda given: list(compiled(*given))


def _copies(value: Any) -> Any:
    """Fresh tensors, so that a first call in place leaves the inputs as they are."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copies(item) for key, item in value.items()}
    return [_copies(item) for item in value] if isinstance(value, list) else value
