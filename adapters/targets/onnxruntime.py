"""ONNX Runtime: nodes and single operators through `torch.onnx.export`, weights as inputs of the graph."""

from __future__ import annotations

import functools
import importlib.util
import os
import tempfile
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import onnxruntime
import torch

from day0_worker import NodeRun, Stack, StackError, describing
from day0_worker.batches import OperatorJob, OperatorResult, in_one_graph
from day0_worker.executable import Compiled, Executable, for_all_sizes, shapes_for_export
from day0_worker.lifted import LiftedNode, LiftedNodes
from day0_worker.one_operator import OneOperator
from day0_worker.operator_graphs import run_as_graph
from day0_worker.shelf import ModuleShelf

_PACKAGES = ("onnx", "onnxscript", "transformers")
_LOW_PRECISION = ("torch.bfloat16", "torch.float16", "torch.float8_e4m3fn", "torch.float8_e5m2")


class OnnxRuntimeStack(Stack):
    """Executes exported graphs; having no loader of checkpoints, it claims neither `model` nor `generate`."""

    name = "onnxruntime"

    def __init__(self, device: str, count: int, dtype: Optional[str], options: Mapping[str, str]) -> None:
        super().__init__(device, count, dtype, options)
        self.provider = _provider(device, self.options)
        self._nodes = LiftedNodes(self, ModuleShelf("cpu", options), self._compile_node)
        self._last_operator: Tuple[str, Optional[Compiled]] = ("", None)
        _remember_translations()

    def describe(self) -> Dict[str, Any]:
        """See `Stack`."""
        capabilities = []
        lacking = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
        if lacking:
            self.remark(
                "no_exporter", self.name, f"{' and '.join(lacking)} not installed: nothing can be exported"
            )
        else:
            capabilities.append("op")
            if importlib.util.find_spec("transformers"):
                capabilities.append("fragment")
            else:
                self.remark(
                    "no_transformers", self.name, "transformers is not installed: nodes cannot be built"
                )
        dtypes = ["fp32", "fp64"] if self.device == "cpu" else ["fp32", "fp16"]
        fingerprint = describing.fingerprint(
            "onnxruntime", onnxruntime.__version__, "cpu", ("onnxruntime", *_PACKAGES)
        )
        fingerprint["exact"]["provider"] = self.provider
        if self.device != "cpu":
            fingerprint["family"] += f" {self.provider}"
        return {
            "api": self.api,
            "capabilities": capabilities,
            "dtypes": {"weights": dtypes, "activations": dtypes, "collectives": []},
            "devices": describing.devices("cpu") if self.device == "cpu" else [{"name": self.provider}],
            "fingerprint": fingerprint,
            "anomalies": self.end_call()["anomalies"],
        }

    def prepare(self, fragment: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: str,
                weights: str) -> str:  # fmt: skip
        """See `Stack`; exports the kind, 4 to 5 s."""
        return self._nodes.prepare(fragment, args, kwargs, mode, weights)

    def run(self, job: NodeRun) -> Any:
        """See `Stack`."""
        return self._nodes.run(job)

    def forget(self, state: str) -> None:
        """See `Stack`."""
        self._nodes.forget(state)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See `Stack`; exports the one operator, unless the last call was its like with other values."""
        one = OneOperator(self.ways.operator(op), args, kwargs)
        signature, compiled = self._last_operator
        if compiled is None or signature != one.signature:
            compiled = self._compile(one, one.inputs, _names(len(one.inputs)))
            self._last_operator = (one.signature, compiled)
        with self.timed():
            outputs = compiled(one.inputs)
        return one.result(outputs)

    def run_ops(self, jobs: Sequence[OperatorJob]) -> List[OperatorResult]:
        """See `Stack`; one graph of all."""
        return in_one_graph(self, jobs, self._run_graph)

    def _run_graph(self, jobs: Sequence[OperatorJob]) -> List[Any]:
        return run_as_graph(self, jobs, lambda many, inputs: self._compile(many, inputs, _names(len(inputs))))

    def report(self, handle: str) -> Dict[str, Any]:
        """See `Stack`."""
        return self._nodes.report(handle)

    def _compile_node(
        self, node: LiftedNode, inputs: List[torch.Tensor], names: List[str], dims: List[List[int]]
    ) -> Executable:
        def make(dims: List[List[int]]) -> Executable:
            if dims or self.ways.table():
                shapes = shapes_for_export(dims) if dims else None
                return self._compiled(self.ways.exported(node, inputs, shapes), inputs, names)
            return self._compiled(node, inputs, names)

        return for_all_sizes(dims, make)

    def _compile(self, module: torch.nn.Module, inputs: List[torch.Tensor], names: List[str]) -> Compiled:
        given = self.ways.exported(module, inputs) if self.ways.table() else module
        return self._compiled(given, inputs, names, count=False).run

    def _compiled(
        self, module: Any, inputs: List[torch.Tensor], names: List[str], count: bool = True
    ) -> Executable:
        program = torch.onnx.export(module, tuple(inputs), dynamo=True, input_names=names, verbose=False)
        if program is None:
            raise StackError("torch.onnx.export gave no program")
        model = program.model_proto
        session, kernels = _session(model.SerializeToString(), self.provider, inputs, count)
        known = {entry.name for entry in session.get_inputs()}
        kinds = [entry.type for entry in session.get_outputs()]
        outputs = [entry.name for entry in session.get_outputs()]

        def run(given: List[torch.Tensor]) -> List[torch.Tensor]:
            # Inputs that the graph does not use are optimised out of it.
            feeds = {name: _value(given[index]) for index, name in enumerate(names) if name in known}
            values = session.run_with_ort_values(outputs, feeds)
            return [_tensor(value, kinds[index]) for index, value in enumerate(values)]

        return Executable(run, _counted(model.graph, "onnx"), kernels)


def _names(count: int) -> List[str]:
    return [f"input_{index}" for index in range(count)]


def _remember_translations() -> None:
    """Has torch build its table of ONNX translations once a process, not once an export.

    The table is most of a small export's time. It is not public: where torch has it no longer, exports are
    as slow as torch makes them, and nothing else changes.
    """
    registration = importlib.import_module("torch.onnx._internal.exporter._registration")
    registry = getattr(registration, "ONNXRegistry", None)
    build = getattr(registry, "from_torchlib", None)
    if registry is not None and build is not None and not hasattr(build, "cache_info"):
        registry.from_torchlib = staticmethod(functools.lru_cache(maxsize=None)(build))


def _session(
    model: bytes, provider: str, inputs: Sequence[torch.Tensor], count: bool
) -> Tuple[Any, Dict[str, int]]:
    """A session, and the nodes that it executes once its graph is optimised."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    try:
        with tempfile.TemporaryDirectory() as folder:
            if count:
                settings.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
            session = onnxruntime.InferenceSession(model, settings, providers=[provider])
            return session, _executed(settings.optimized_model_filepath) if count else {}
    except Exception as error:  # ONNX Runtime's exceptions have no common base below Exception
        low = sorted({str(tensor.dtype) for tensor in inputs} & set(_LOW_PRECISION))
        text = f"{type(error).__name__}: {error}"
        if low and ("NOT_IMPLEMENTED" in text or "Type Error" in text or "type" in text.lower()):
            raise StackError(f"{provider} has no kernel for {' and '.join(low)}: {text}", "dtype") from error
        raise


def _executed(path: str) -> Dict[str, int]:
    onnx = importlib.import_module("onnx")
    return _counted(onnx.load(path).graph, "onnxruntime")


def _counted(graph: Any, own: str) -> Dict[str, int]:
    """Operator -> number in an ONNX graph, `OWN.NAME` for ONNX's own, `DOMAIN.NAME` for others'."""
    return dict(Counter(f"{node.domain or own}.{node.op_type}" for node in graph.node))


def _provider(device: str, options: Mapping[str, str]) -> str:
    """The execution provider of a device: `CPU`, `CUDA`, ..., or the one that `?provider=` names.

    Raises:
        StackError: `unsupported`, this ONNX Runtime was built without it.
    """
    wanted = options.get("provider", device)
    there = onnxruntime.get_available_providers()
    for provider in there:
        if provider.lower() == f"{wanted.lower()}executionprovider":
            return str(provider)
    raise StackError(
        f"ONNX Runtime {onnxruntime.__version__} has no provider for {wanted!r}, only {', '.join(there)}",
        "unsupported",
    )


def _value(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        # numpy has no bf16; 16 is ONNX's number for it.
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.view(torch.int16).numpy(), 16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())


def _tensor(value: Any, kind: str) -> torch.Tensor:
    if kind == "tensor(bfloat16)":
        raise StackError("ONNX Runtime's Python interface cannot hand out bf16 tensors", "dtype")
    return torch.from_numpy(value.numpy())
