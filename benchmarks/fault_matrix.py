"""Prints what a probe makes of every kind of fault seeded into a simulated accelerator.

python benchmarks/fault_matrix.py [MODEL_TYPE ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from day0.adapters.targets.target import WorkerTarget
from support.fault_matrix import Matrix, fault_matrix
from support.simulated_target import simulated
from support.tiny_models import TINY


def measure(model_types: list[str]) -> Matrix:
    """Probes tiny models on the simulated device with all faults."""

    def opened(faults: Mapping[str, str]) -> WorkerTarget:
        return simulated(10.0, "bf16", faults, "npu")

    with tempfile.TemporaryDirectory() as folder:
        return fault_matrix(model_types, opened, Path(folder))


if __name__ == "__main__":
    print(*measure(sys.argv[1:] or list(TINY)).lines(), sep="\n")
