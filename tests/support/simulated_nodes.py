"""Nodes on the simulated device: every operator of a run meets its table of kernels, below autograd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun
from support.simulated_accelerator import SimulatedAccelerator
from support.simulated_device import Device, values_of


class SimulatedNodes(SimulatedAccelerator):
    name = "simulated"

    def prepare(self, fragment: Mapping[str, Any], *args: Any, **kwargs: Any) -> str:
        with Device():
            return super().prepare(fragment, *args, **kwargs)

    def run(self, job: NodeRun) -> Any:
        names = {entry.partition(":")[0] for entry in self._fault_of}
        spoilt = {
            name: lambda kernel, given, named, name=name: self._faulty(
                lambda _, args, kwargs: kernel(*args, **kwargs), name, given, named
            )
            for name in names
        }
        with Device(frozenset(), spoilt):
            return values_of(EagerStack.run(self, job))
