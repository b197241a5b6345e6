"""torch as it is, on any device that torch knows: single operators, nodes, whole models, collectives."""

from __future__ import annotations

import importlib.util
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from day0_worker import NodeRun, Stack, StackError, describing, host_fallback, loading, ranks, training
from day0_worker.kept_inputs import changed_inputs, kept_inputs
from day0_worker.modules import NodeModules
from day0_worker.shelf import ModuleShelf


class EagerStack(Stack):
    """Torch in eager mode; a vendor with a torch device of its own derives from it."""

    name = "eager"
    engine = "torch"
    packages: Sequence[str] = ("transformers", "safetensors")

    def __init__(self, device: str, count: int, dtype: Optional[str], options: Mapping[str, str]) -> None:
        super().__init__(device, count, dtype, options)
        self.shelf = ModuleShelf(device, options)
        self._kept: Tuple[str, str, str] = ("", "", "")
        self._fallen: Dict[str, List[Tuple[str, str]]] = {}
        self._model: Optional[torch.nn.Module] = None

    def engine_version(self) -> str:
        """Version of what executes; the fingerprint's family keeps major.minor."""
        return torch.__version__

    def offered(self) -> List[str]:
        """Capabilities that work here, by what is installed."""
        offered = ["op"]
        if importlib.util.find_spec("transformers"):
            offered += ["fragment", "observe", "grad", "model", "generate"]
            if type(self).run is EagerStack.run or self.run_may_stand_still:
                offered.append("parts")
        else:
            self.remark(
                "no_transformers", self.name, "transformers is not installed: nodes and models cannot run"
            )
        if torch.distributed.is_available() and ranks.backend_of(self.device):
            offered.append("collectives")
        return offered

    def describe(self) -> Dict[str, Any]:
        """See `Stack`."""
        capabilities = self.offered()
        dtypes = describing.working_dtypes(self.device)
        return {
            "api": self.api,
            "capabilities": capabilities,
            "dtypes": {
                "weights": dtypes,
                "activations": dtypes,
                "collectives": list(ranks.DTYPES) if "collectives" in capabilities else [],
            },
            "devices": describing.devices(self.device),
            "fingerprint": describing.fingerprint(
                self.engine, self.engine_version(), self.device, self.packages
            ),
            "anomalies": self.end_call()["anomalies"],
            "torch_modules": self._torch_modules(),
            "owner": self.owner,
        }

    def _torch_modules(self) -> List[str]:
        """See `TargetDescription`: what derives from this and runs operators otherwise names none."""
        if type(self).run_op is not EagerStack.run_op:
            return []
        module = type(self).__module__
        return list(self.torch_modules) or ([] if module.startswith(__package__ + ".") else [module])

    def prepare(self, fragment: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: str,
                weights: str) -> str:  # fmt: skip
        """See `Stack`; eager builds the module only."""
        key = self.shelf.key(fragment)
        self.shelf.get(key).parameters(fragment["node"])
        return key

    def run(self, job: NodeRun) -> Any:
        """See `Stack`; weights of the node run last stay, others are dropped."""
        if job.experts:
            return self._run_experts(job)
        modules = self.loaded(job)
        self.shelf.name_choices(job.handle, self)
        args, kwargs = self.to_device(job.args), self.to_device(job.kwargs)
        with self.timed():
            return modules.run(job.node, None, args, kwargs, job.state, keep=True, pause=job.pause)

    def _run_experts(self, job: NodeRun) -> Any:
        """The experts alone; their weights go again, those of the node stay."""
        modules = self.shelf.get(job.handle)
        self.shelf.name_choices(job.handle, self)
        hidden, ids, weights = self.to_device(list(job.args))
        with modules.experts(job.node, job.experts, job.weights or {}) as run, self.timed():
            return run(hidden, ids, weights)

    def forget(self, state: str) -> None:
        """See `Stack`."""
        self.shelf.forget(state)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See `Stack`."""
        function = self.ways.operator(op)
        if self.device != "cpu":
            self._watch(op, function, args, kwargs)
        placed, named = self.to_device([list(args), dict(kwargs)])
        kept = kept_inputs(function, placed, named)
        with self.timed(), torch.no_grad(), self.ways.active():
            result = function(*placed, **named)
        for name in changed_inputs(kept):
            self.remark("input_changed", op, f"{op} wrote over its argument {name}")
        return result

    def _watch(self, op: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Runs it on tensors of its own, once for each tuple of dtypes, to see whether the host computes."""
        # Not the tensors of the call itself: an operator in place would change them twice.
        placed, named = self.to_device(host_fallback.copied([list(args), dict(kwargs)]))
        key = f"{op} {host_fallback.dtypes_of([placed, named])}"
        if key not in self._fallen:
            try:
                with torch.no_grad(), self.ways.active():
                    found = host_fallback.watched(self.device, lambda: function(*placed, **named))
            except Exception as error:  # whatever the host's kernel raises; all but the one kind goes on
                if host_fallback.lacks_too(error):
                    raise StackError(f"{op} fell back to the host: {error}", "double_fault") from error
                raise
            self._fallen[key] = found
        for fallen, evidence in self._fallen[key]:
            self.remark("cpu_fallback", op, f"{fallen or op} was computed on the host", evidence)

    def load(self, folder: str, dtype: str) -> Dict[str, Any]:
        """See `Stack`; by transformers' `from_pretrained`."""
        self._model = None
        self._model, report = loading.load_folder(folder, dtype, self.device, self.options)
        return report

    def train(self, job: training.TrainJob) -> training.Trained:
        """See `Stack`; with the optimiser of `optimiser`."""
        self._drop_kept()
        job.options = {**self.options, **job.options}
        return training.train(job, self.device, self.optimiser)

    def optimiser(self, parameters: List[torch.nn.Parameter], settings: Mapping[str, float]) -> Any:
        """AdamW with these settings; a vendor that has one of its own overrides it."""
        return training.adamw(parameters, settings)

    def score(self, tokens: List[List[int]]) -> Any:
        """See `Stack`."""
        with self.ways.active():
            return loading.logits(self.loaded_model(), tokens, self.device)

    def generate(self, tokens: List[List[int]], new_tokens: int) -> Dict[str, Any]:
        """See `Stack`; by transformers' `generate`."""
        with self.timed(), self.ways.active():
            result = loading.continue_greedily(self.loaded_model(), tokens, new_tokens, self.device)
        return {**result, "peak_bytes": self.measure.peak_bytes}

    def launch(self, world_size: int, job: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """See `Stack`."""
        return ranks.launch(world_size, job, self)

    def loaded(self, job: NodeRun) -> NodeModules:
        """The node's modules with its weights in place.

        Raises:
            StackError: the handle is unknown, or no weights came and those of the last run are gone.
        """
        modules = self.shelf.get(job.handle)
        if job.weights is not None:
            self._drop_kept()
            modules.load(job.node, job.weights, job.pause)
            self._kept = (job.handle, job.node, job.pause)
        elif not self._keeps(job) and modules.parameters(job.node):
            raise StackError(f"the weights of {job.node} are no longer here; another node ran since")
        return modules

    def _keeps(self, job: NodeRun) -> bool:
        handle, node, without = self._kept
        return (handle, node) == (job.handle, job.node) and without in ("", job.pause)

    def loaded_model(self) -> torch.nn.Module:
        """The model of the last `load`.

        Raises:
            StackError: none was loaded.
        """
        if self._model is None:
            raise StackError("no checkpoint was loaded in this worker")
        return self._model

    def to_device(self, value: Any) -> Any:
        """The tree on the device: its tensors, and what names the CPU; one tensor met twice stays one."""
        return value if self.device == "cpu" else _placed(value, torch.device(self.device), {})

    def _drop_kept(self) -> None:
        handle, node, _ = self._kept
        if handle:
            self.shelf.get(handle).free(node)
        self._kept = ("", "", "")


def _placed(value: Any, device: torch.device, done: Dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) not in done:
            done[id(value)] = value.to(device)
        return done[id(value)]
    if isinstance(value, dict):
        return type(value)((key, _placed(item, device, done)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(item, device, done) for item in value)
    return device if isinstance(value, torch.device) else value
