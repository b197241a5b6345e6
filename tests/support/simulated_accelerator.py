"""An accelerator that does not exist: the CPU's kernels with chosen ones missing, wrong, crashing or hanging.

What coverage finds on it is what was seeded here, no more and no less: the coverage of coverage.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from day0.adapters.targets.eager import EagerStack

FAULTS = ("missing", "dtype", "wrong", "clamp", "crash", "hang")


class SimulatedAccelerator(EagerStack):
    """Faults come as options: `?missing=aten.silu.default&dtype=aten.mm.default:bf16`."""

    name = "simulated"

    def __init__(self, device: str, count: int, dtype: str | None, options: Mapping[str, str]) -> None:
        faults = {fault: options[fault].split() for fault in FAULTS if fault in options}
        super().__init__(device, count, dtype, {})
        self._fault_of: dict[str, str] = {}
        for fault, entries in faults.items():
            for entry in entries:
                self._fault_of[entry] = fault

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The CPU's kernel, or the seeded fault."""
        first = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        dtype = str(first.dtype) if first is not None else ""
        short = {"torch.bfloat16": "bf16", "torch.float32": "fp32"}.get(dtype, dtype)
        fault = self._fault_of.get(op) or self._fault_of.get(f"{op}:{short}")
        if fault == "missing":
            raise NotImplementedError(f"Could not run '{op}' with arguments from the 'Simulated' backend.")
        if fault == "dtype":
            raise RuntimeError(f"\"{op.split('.')[1]}\" not implemented for 'BFloat16'")
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        if fault == "clamp":
            args = [args[0].clamp(max=8.0), *args[1:]]
        result = super().run_op(op, args, kwargs)
        return result * 1.05 if fault == "wrong" else result
