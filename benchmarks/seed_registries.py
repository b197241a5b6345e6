"""Makes the registries that Day0 ships anew: the seed models' operators, tried on this machine's stacks.

    python benchmarks/seed_registries.py [--seconds 600] [STACK@DEVICE/DTYPE ...]

Rows that a registry has under this machine's very fingerprint are left alone, so that a run that was stopped
goes on; rows of other fingerprints stay.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.progress import log_progress
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.registries.files import add_to_store, dump_registry, parse_registry, stored_registry
from day0.adapters.registries.registry import Registry
from day0.adapters.targets.open import open_target
from day0.tasks.coverage.needs import on_target
from day0.tasks.coverage.probe import probe
from day0.tasks.coverage.seeds import seed_calls

TARGETS = (
    "eager@cpu/bf16",
    "eager@cpu/fp32",
    "onnxruntime@cpu/fp32",
    "openvino@cpu/fp32",
    "inductor@cpu/bf16",
    "inductor@cpu/fp32",
)
FOLDER = Path(__file__).parents[1] / "adapters" / "registries"
_FORMAT = '"format": 2'


def refresh(text: str, calls: list[OperatorCall], seconds: float) -> None:
    """Tries the calls on one target and writes its registry's file."""
    spec = TargetSpec.parse(text)
    path = FOLDER / f"{spec.registry_name.replace('@', '-')}.json"
    with tempfile.TemporaryDirectory() as folder, open_target(spec, timeout=180.0) as target:
        store = RunStore(folder)
        if path.is_file() and _FORMAT in path.read_text():
            add_to_store(store, parse_registry(spec.registry_name, path.read_text()))
        wanted = on_target(calls, "bf16", spec)
        found = probe(wanted, target, store, budget=seconds, progress=log_progress)
        print(*found.lines(), sep="\n", flush=True)
        path.write_text(dump_registry(_measured(stored_registry(store, spec.registry_name))))


def _measured(registry: Registry) -> Registry:
    """Decided rows alone: what could not be told is no knowledge."""
    rows = {place: row for place, row in registry.rows.items() if row.status != "unknown"}
    return Registry(registry.name, rows, registry.fingerprints)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target")
    options = parser.parse_args()
    calls = seed_calls()
    for target in options.targets:
        refresh(target, calls, options.seconds)


if __name__ == "__main__":
    main()
