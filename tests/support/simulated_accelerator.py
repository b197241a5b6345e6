"""An accelerator that does not exist: the CPU's kernels with chosen ones missing, wrong, crashing or hanging.

What coverage finds on it is what was seeded here, no more and no less: the coverage of coverage. On `cpu` a
fault is that of an operator as it is called; on `npu` operators run on a simulated device, in which faults
sit below autograd, where a real one has its kernels.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.targets.eager import EagerStack
from support.simulated_device import Device, register, values_of
from support.subtle_faults import SUBTLE

FAULTS = (
    "missing",
    "dtype",
    "wrong",
    "clamp",
    "ignored",
    "crash",
    "hang",
    "slow",
    "fallback",
    "double",
    *SUBTLE,
)
_SHORT = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.float16": "fp16"}
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class SimulatedAccelerator(EagerStack):
    """Faults come as options: `?missing=aten.silu.default&dtype=aten.mm.default:bf16`.

    `OP` is faulty always, `OP:bf16` where its first tensor is of that dtype, `OP:NAME` (of `ignored`) where
    the attribute of that name is given.
    """

    name = "simulated"

    def __init__(self, device: str, count: int, dtype: str | None, options: Mapping[str, str]) -> None:
        if device != "cpu":
            register()
        super().__init__(device, count, dtype, {key: options[key] for key in ("with",) if key in options})
        self._fault_of = {
            entry: fault for fault in FAULTS if fault in options for entry in options[fault].split()
        }
        self._past: dict[str, dict[str, Any]] = {}
        self._ignored = {
            entry.rpartition(":")[0]: entry.rpartition(":")[2]
            for entry, fault in self._fault_of.items()
            if fault == "ignored"
        }

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The CPU's kernel, or the seeded fault."""
        if self.device == "cpu":
            return (
                super().run_op(op, args, kwargs)
                if self.ways.replaces(op)
                else self._faulty(super().run_op, op, args, kwargs)
            )
        names = {entry.partition(":")[0] for entry in self._fault_of}
        spoilt = {
            name: lambda kernel, given, named, name=name: self._faulty(
                lambda _, args, kwargs: kernel(*args, **kwargs), name, given, named
            )
            for name in names
        }
        missing = {entry for entry, fault in self._fault_of.items() if fault == "missing"}
        with Device(frozenset(missing), spoilt):
            return values_of(super().run_op(op, args, kwargs))

    def _faulty(
        self, run: Callable[..., Any], op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        fault = self._fault(op, args)
        if op in self._ignored:
            args, kwargs = _without(op, self._ignored[op], args, kwargs)
        _BEFORE.get(fault, _nothing)(op)
        if fault == "clamp":
            args = [args[0].clamp(max=8.0), *args[1:]]
        if fault in SUBTLE:
            past = self._past.setdefault(op, {})
            return SUBTLE[fault](lambda given, named: run(op, given, named), args, kwargs, past)
        result = run(op, args, kwargs)
        return result * 1.05 if fault == "wrong" else result

    def _fault(self, op: str, args: Sequence[Any]) -> str:
        first = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        dtype = _SHORT.get(str(first.dtype), "") if first is not None else ""
        return self._fault_of.get(op) or self._fault_of.get(f"{op}:{dtype}") or ""


def _without(
    op: str, attribute: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments with an attribute at its default, whatever it was."""
    schema = getattr(getattr(torch.ops.aten, op.split(".")[1]), op.split(".")[2])._schema
    names = [argument.name for argument in schema.arguments]
    place = names.index(attribute)
    default = schema.arguments[place].default_value
    changed = [default if at == place else arg for at, arg in enumerate(args)]
    return changed, {name: value for name, value in kwargs.items() if name != attribute}


def _lacks(op: str) -> None:
    raise NotImplementedError(f"Could not run '{op}' with arguments from the 'Simulated' backend.")


def _refuses_dtype(op: str) -> None:
    raise RuntimeError(f"\"{op.split('.')[1]}\" not implemented for 'BFloat16'")


def _dies(op: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _falls_back(op: str) -> None:
    name = f"aten::{op.split('.', 1)[1]}"
    warnings.warn(f"The operator '{name}' will fall back to run on the CPU.", stacklevel=2)


def _falls_twice(op: str) -> None:
    _falls_back(op)
    name = f"aten::{op.split('.')[1]}"
    raise NotImplementedError(f"Could not run '{name}' with arguments from the 'CPU' backend.")


def _nothing(op: str) -> None:
    """A sound kernel."""


_BEFORE: Mapping[str, Callable[[str], None]] = {
    "missing": _lacks,
    "dtype": _refuses_dtype,
    "crash": _dies,
    "hang": lambda op: time.sleep(3600),
    "slow": lambda op: time.sleep(0.6),
    "fallback": _falls_back,
    "double": _falls_twice,
}
