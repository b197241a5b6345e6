"""A stack that is sent bf16 and computes its products in fp8 or int8, by an arithmetic of its own.

Nothing here is shared with what the numerics stage takes for such a stack's rounding: weights have one scale
for a whole matrix or one for each output channel, numbers are scaled up by a reciprocal, products of the
numbers themselves are added up and scaled down afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from day0.adapters.base.target import TargetDescription
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun
from support.in_process_target import InProcessTarget

_NUMBERS = itertools.count(1)
_LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0}
_FLOAT8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@dataclass(frozen=True)
class Kernel:
    """A linear layer in a low precision.

    Attributes:
        dtype: fp8_e4m3, fp8_e5m2 or int8.
        whole: whether a matrix has one scale; else each output channel has its own.
        still: whether all tokens of a call share a scale; else each has its own.
    """

    dtype: str
    whole: bool = True
    still: bool = False

    def __call__(self, values: Tensor, weight: Tensor, bias: Tensor | None, bug: str = "") -> Tensor:
        flat = values.float().reshape(-1, values.shape[-1])
        numbers, up = self._numbers(weight.float(), whole=self.whole)
        tokens, also_up = self._numbers(flat, whole=self.still)
        output = tokens @ numbers.T
        if bug == "scale of the channel beside":
            up = up.roll(1, 0)
        output = output / also_up if bug == "no scale" else output / also_up / up.T
        if bias is not None and bug != "no bias":
            output = output + bias.float()
        return output.to(values.dtype).reshape(*values.shape[:-1], -1)

    def _numbers(self, rows: Tensor, *, whole: bool) -> tuple[Tensor, Tensor]:
        """Numbers of the format, and [rows, 1] what they were multiplied with."""
        largest = rows.abs().amax() if whole else rows.abs().amax(1, keepdim=True)
        up = (_LARGEST[self.dtype] / largest.clamp_min(1e-12)).expand(len(rows), 1)
        scaled = rows * up
        if self.dtype == "int8":
            return torch.floor(scaled + 0.5).clamp(-127, 127), up
        return scaled.to(_FLOAT8[self.dtype]).float(), up


@dataclass(frozen=True)
class Bug:
    """A fault of one matrix.

    Attributes:
        kind: `no scale`, `scale of the channel beside` or `no bias`.
        hits: told the parameter's full name, and the matrix that is multiplied.
    """

    kind: str
    hits: Callable[[str, Tensor], bool]


class QuantisingTarget(InProcessTarget):
    """Sent bf16, computes in the precision of its spec.

    Args:
        text: the target, e.g. `quantising@cpu/fp8_e4m3?experts=eager`.
        kernel: of all its linear layers but routers, head and those with fewer than 16 inputs or outputs.
        bug: in one of them.
        claims: dtypes for weights that it names.
        capabilities: that it claims.
    """

    def __init__(
        self,
        text: str,
        kernel: Kernel,
        bug: Bug | None = None,
        claims: Sequence[str] = ("bf16", "fp8_e4m3", "fp8_e5m2", "int8"),
        capabilities: Sequence[str] = ("fragment", "parts"),
    ) -> None:
        self._kernel, self._bug, self._claims = kernel, bug, claims
        self._number = next(_NUMBERS) if bug is not None else 0
        super().__init__(text, capabilities=capabilities)

    def describe(self) -> TargetDescription:
        said = {"weights": self._claims, "activations": ["bf16"], "collectives": []}
        exact = {"kernel": str(self._kernel), "bug": str(self._number)}
        fingerprint = Fingerprint(family="quantising", exact=exact)
        return super().describe().model_copy(update={"dtypes": said, "fingerprint": fingerprint})

    def _start(self) -> None:
        super()._start()
        self._stack = _Stack(self.spec.dtype, self.spec.options, self._kernel, self._bug)


class _Stack(EagerStack):
    run_may_stand_still = True

    def __init__(
        self, dtype: str | None, options: Mapping[str, str], kernel: Kernel, bug: Bug | None
    ) -> None:
        super().__init__("cpu", 1, dtype, options)
        self._kernel, self._bug = kernel, bug

    def run(self, job: NodeRun) -> Any:
        """See `Stack`."""
        with _Linear(lambda weight: self._name(job, weight), self._kernel, self._bug):
            return super().run(job)

    def _name(self, job: NodeRun, weight: Tensor) -> str:
        """Full name of the parameter that a matrix lies in."""
        start = weight.data_ptr()
        for name, known in self.shelf.get(job.handle).module(job.node).named_parameters():
            if not known.is_meta and known.data_ptr() <= start < known.data_ptr() + known.nbytes:
                return f"{job.node}.{name}"
        return ""


class _Linear(TorchFunctionMode):
    def __init__(self, name: Callable[[Tensor], str], kernel: Kernel, bug: Bug | None) -> None:
        super().__init__()
        self._name, self._kernel, self._bug = name, kernel, bug

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is not torch.nn.functional.linear:
            return func(*args, **given)
        values, weight = args[0], args[1]
        bias = args[2] if len(args) > 2 else given.get("bias")
        name = self._name(weight)
        small = min(weight.shape) < 16
        if not name or small or name.startswith("lm_head") or ".gate." in name:
            return func(*args, **given)
        bug = self._bug.kind if self._bug is not None and self._bug.hits(name, weight) else ""
        return self._kernel(values, weight, bias, bug)
