"""Eager torch with one operator wrong in one layer: `?how=WAY&op=OP&layer=NODE[&factor=1.05]`.

| how | what is done |
|---|---|
| `mode` | while the layer runs, a dispatch mode multiplies the operator's result |
| `write` | the same, written into the result's own memory by code that torch does not see (fp32) |
| `patched` | while the layer runs, the function of `torch.nn.functional` of that name multiplies its result |
| `argument` | while the layer runs, the operator gets its last number times the factor |
| `other` | the layer's activation is another function altogether |
| `forward` | a module in the layer (`module=mlp.act_fn`) multiplies its result |
| `eps` | the norms of the layer have another epsilon |
| `narrow` | while the layer runs, the operator computes in bf16 inside |
| `kernel` | while the layer runs, torch has another kernel for silu, which multiplies its result |
| `raises` | while the layer runs, the operator has no kernel |

With `decode` it shows in runs of single tokens only, with `inside` in the layer's modules as well when they
run alone, with `alone` in `run_op`, too; with `blind` the stack cannot be observed.
Several layers stand with a comma.
"""

# mypy: disable-error-code="no-untyped-call, assignment, no-any-return"

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun
from day0_worker.training import Trained, TrainJob


class Spoiling(TorchDispatchMode):
    def __init__(self, how: str, op: str, factor: float) -> None:
        super().__init__()
        self._how, self._op, self._factor = how, op, factor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if str(func) != self._op:
            return func(*args, **named)
        if self._how == "raises":
            raise NotImplementedError(f"Could not run '{func}' with arguments from the 'Askew' backend.")
        if self._how == "argument":
            return func(*[arg * self._factor if isinstance(arg, float) else arg for arg in args], **named)
        if self._how == "narrow":
            made = func(*[arg.bfloat16() if torch.is_tensor(arg) else arg for arg in args], **named)
            return made.to(args[0].dtype)
        made = func(*args, **named)
        first = made[0] if isinstance(made, tuple) else made
        if self._how == "write":
            first.numpy(force=True)[...] *= self._factor
            return made
        changed = first * self._factor
        return (changed, *made[1:]) if isinstance(made, tuple) else changed


class WrongSlope(torch.autograd.Function):
    """The activation as it is, backward with 1.3 times its slope."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(value)
        return torch.ops.aten.silu(value)

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> torch.Tensor:
        (value,) = context.saved_tensors
        return torch.ops.aten.silu_backward(slopes[0], value) * 1.3


class AskewStack(EagerStack):
    name = "askew"
    run_may_stand_still = True

    def offered(self) -> list[str]:
        return [word for word in super().offered() if word != "observe" or "blind" not in self.options]

    def prepare(self, fragment: Mapping[str, Any], *args: Any, **kwargs: Any) -> str:
        handle = super().prepare(fragment, *args, **kwargs)
        how = self.options.get("how", "")
        for layer in self._layers():
            module = self.shelf.get(handle).model.get_submodule(layer)
            if how == "forward":
                _multiplied(module.get_submodule(self.options["module"]), self._factor())
            if how == "eps":
                for part in module.modules():
                    if hasattr(part, "variance_epsilon"):
                        part.variance_epsilon = 0.1
            if how == "other":
                module.get_submodule("mlp.act_fn").forward = lambda value: value * torch.sigmoid(1.1 * value)
        return handle

    def run(self, job: NodeRun) -> Any:
        hit = job.node in self._layers() or (
            "inside" in self.options and any(job.node.startswith(f"{one}.") for one in self._layers())
        )
        tensors = [one for one in (*job.args, *job.kwargs.values()) if torch.is_tensor(one) and one.dim() > 1]
        hit = hit and ("decode" not in self.options or (bool(tensors) and tensors[0].shape[1] == 1))
        with self._spoilt() if hit else contextlib.nullcontext():
            return super().run(job)

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self._spoilt() if "alone" in self.options else contextlib.nullcontext():
            return super().run_op(op, args, kwargs)

    def train(self, job: TrainJob) -> Trained:
        """`how`: `slope` (of the activation number `nth`), `nan`, `lost`, `moved` (of `weight`)."""
        how, weight = self.options.get("how", ""), self.options.get("weight", "")
        right, calls = torch.nn.functional.silu, itertools.count()

        def silu(value: torch.Tensor, inplace: bool = False) -> torch.Tensor:
            return WrongSlope.apply(value) if next(calls) == int(self.options["nth"]) else right(value)

        if how == "slope":
            torch.nn.functional.silu = silu
        try:
            made = super().train(job)
        finally:
            torch.nn.functional.silu = right
        if how == "nan":
            made.gradients[weight].view(-1)[0] = torch.nan
        if how == "lost":
            del made.gradients[weight]
        if how == "moved":
            made.weights[weight] += 1
        return made

    def optimiser(self, parameters: list[torch.nn.Parameter], settings: Mapping[str, float]) -> Any:
        if self.options.get("how") == "decay":
            return super().optimiser(parameters, {**settings, "weight_decay": 0.0})
        if self.options.get("how") == "coupled":
            return torch.optim.Adam(parameters, lr=settings["lr"], weight_decay=settings["weight_decay"])
        return super().optimiser(parameters, settings)

    @contextlib.contextmanager
    def _spoilt(self) -> Iterator[None]:
        how, op = self.options.get("how", ""), self.options.get("op", "")
        if how == "patched":
            right = getattr(torch.nn.functional, op)

            def changed(*args: Any, **kwargs: Any) -> Any:
                return right(*args, **kwargs) * self._factor()

            setattr(torch.nn.functional, op, changed)
            try:
                yield
            finally:
                setattr(torch.nn.functional, op, right)
        elif how == "kernel":
            library = torch.library.Library("aten", "IMPL")
            library.impl("silu", lambda value: value * torch.sigmoid(value) * self._factor(), "CPU")
            try:
                yield
            finally:
                library._destroy()
        elif how in ("mode", "write", "argument", "narrow", "raises"):
            with Spoiling(how, op, self._factor()):
                yield
        else:
            yield

    def _layers(self) -> Sequence[str]:
        return self.options.get("layer", "").split(",")

    def _factor(self) -> float:
        return float(self.options.get("factor", "1.05"))


def _multiplied(module: Any, factor: float) -> None:
    if "forward" not in vars(module):
        right = module.forward
        module.forward = lambda *args, **kwargs: right(*args, **kwargs) * factor
