"""OpenVINO: nodes and single operators through `openvino.convert_model`, weights as inputs of the graph."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional, Sequence

import openvino
import torch

from day0_worker import NodeRun, Stack, StackError, describing
from day0_worker.batches import OperatorJob, OperatorResult, in_one_graph
from day0_worker.executable import Executable, for_all_sizes, shapes_for_export
from day0_worker.lifted import LiftedNode, LiftedNodes
from day0_worker.one_operator import OneOperator
from day0_worker.operator_graphs import run_as_graph
from day0_worker.shelf import ModuleShelf

_ENDS = ("Parameter", "Result", "Constant", "Input", "Output", "Const")


class OpenVinoStack(Stack):
    """Executes converted graphs; without a loader of checkpoints it claims neither `model` nor `generate`."""

    name = "openvino"

    def __init__(self, device: str, count: int, dtype: Optional[str], options: Mapping[str, str]) -> None:
        super().__init__(device, count, dtype, options)
        self._core = openvino.Core()
        if device.upper() not in {name.split(".")[0] for name in self._core.available_devices}:
            there = ", ".join(self._core.available_devices)
            raise StackError(
                f"OpenVINO {openvino.__version__} sees no device {device!r}, only {there}", "unsupported"
            )
        self._nodes = LiftedNodes(self, ModuleShelf("cpu", options), self._compile_node)

    def describe(self) -> Dict[str, Any]:
        """See `Stack`."""
        capabilities = ["op"]
        if importlib.util.find_spec("transformers"):
            capabilities.append("fragment")
        else:
            self.remark("no_transformers", self.name, "transformers is not installed: nodes cannot be built")
        version = openvino.__version__.split("-")[0]
        fingerprint = describing.fingerprint("openvino", version, "cpu", ("openvino", "transformers"))
        fingerprint["exact"]["build"] = openvino.__version__
        name = str(self._core.get_property(self.device.upper(), "FULL_DEVICE_NAME"))
        if self.device != "cpu":
            fingerprint["family"] += f" {name}"
        return {
            "api": self.api,
            "capabilities": capabilities,
            "dtypes": {"weights": ["fp32", "fp16"], "activations": ["fp32"], "collectives": []},
            "devices": describing.devices("cpu") if self.device == "cpu" else [{"name": name}],
            "fingerprint": fingerprint,
            "anomalies": self.end_call()["anomalies"],
        }

    def prepare(self, fragment: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: str,
                weights: str) -> str:  # fmt: skip
        """See `Stack`; converts the kind."""
        return self._nodes.prepare(fragment, args, kwargs, mode, weights)

    def run(self, job: NodeRun) -> Any:
        """See `Stack`."""
        return self._nodes.run(job)

    def forget(self, state: str) -> None:
        """See `Stack`."""
        self._nodes.forget(state)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See `Stack`; converts the one operator."""
        one = OneOperator(self.ways.operator(op), args, kwargs)
        compiled = self._compiled(one, one.inputs).run
        with self.timed():
            outputs = compiled(one.inputs)
        return one.result(outputs)

    def run_ops(self, jobs: Sequence[OperatorJob]) -> List[OperatorResult]:
        """See `Stack`; one graph of all."""
        return in_one_graph(self, jobs, self._run_graph)

    def _run_graph(self, jobs: Sequence[OperatorJob]) -> List[Any]:
        return run_as_graph(self, jobs, lambda many, inputs: self._compiled(many, inputs).run)

    def report(self, handle: str) -> Dict[str, Any]:
        """See `Stack`."""
        return self._nodes.report(handle)

    def _compile_node(
        self, node: LiftedNode, inputs: List[torch.Tensor], names: List[str], dims: List[List[int]]
    ) -> Executable:
        return for_all_sizes(dims, lambda dims: self._compiled(node, inputs, dims))

    def _compiled(
        self, module: torch.nn.Module, inputs: List[torch.Tensor], dims: Sequence[Sequence[int]] = ()
    ) -> Executable:
        if any(tensor.dtype is torch.bfloat16 for tensor in inputs):
            raise StackError("OpenVINO's Python interface takes no bf16 tensors", "dtype")
        exported = self.ways.exported(module, inputs, shapes_for_export(dims) if dims else None)
        given_names = list(exported.graph_signature.user_inputs)
        graph = openvino.convert_model(exported)
        # The plugin would compute in bf16 where the processor can.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
        compiled = self._core.compile_model(graph, self.device.upper(), settings)
        request = compiled.create_infer_request()

        # Inputs that the graph does not use are converted away.
        known = {name for port in compiled.inputs for name in port.get_names()}

        def run(given: List[torch.Tensor]) -> List[torch.Tensor]:
            values = {
                name: given[index].detach().cpu().contiguous().numpy()
                for index, name in enumerate(given_names)
                if name in known
            }
            results = request.infer(values, share_inputs=True)
            return [torch.from_numpy(results[port].copy()) for port in compiled.outputs]

        operators = Counter(
            f"{node.get_type_info().version_id}.{node.get_type_name()}"
            for node in graph.get_ops()
            if node.get_type_name() not in _ENDS
        )
        return Executable(run, dict(operators), _executed(compiled))


def _executed(compiled: Any) -> Dict[str, int]:
    """Layers that the plugin executes -> how many, as its runtime model names them."""
    layers: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ops():
        facts = node.get_rt_info()
        layer = str(facts["layerType"].astype(str)) if "layerType" in facts else node.get_type_name()
        if layer not in _ENDS:
            layers[f"openvino.{layer}"] += 1
    return dict(layers)
