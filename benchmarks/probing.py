"""Seconds that trying a model's operators takes on each shipped stack, and that they take once known.

    python benchmarks/probing.py [--seconds 120] [--targets STACK@DEVICE/DTYPE ...] MODEL...

Each probe begins in an empty run store with `--refresh`, so that nothing shipped answers for it; the capture
is taken before and not counted. CPU seconds are those of the probe and all its workers, start and imports
included, so that they say the same on a busy machine; the load beside them is the minute's before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TARGETS = ("eager@cpu/bf16", "inductor@cpu/bf16", "onnxruntime@cpu/fp32", "openvino@cpu/fp32")
HEAD = (
    "| model | target | rows tried | first calls s | s | CPU s | left | known: s | CPU s | load |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def measured(model: str, target: str, seconds: float) -> str:
    """One line of the table."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as store:
        common = [model, "--store", store, "--json"]
        # With nothing to spend the first run captures the model and describes the target.
        _run(["probe", *common, "--target", target, "--probe-budget", "0"])
        first, wall, cpu = _run(
            ["probe", *common, "--target", target, "--refresh", "--probe-budget", str(seconds)]
        )
        again, known_wall, known_cpu = _run(["probe", *common, "--target", target, "--probe-budget", "0"])
    began = f"{first['first_seconds']:.0f}" if first["first_seconds"] else f"> {seconds:.0f}"
    cells = (
        Path(model).name, target, first["probed"], began, f"{wall:.0f}", f"{cpu:.0f}", again["left"],
        f"{known_wall:.1f}", f"{known_cpu:.1f}", f"{load:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _run(words: Sequence[str]) -> tuple[dict[str, Any], float, float]:
    """What `day0` answers, with seconds and CPU seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "day0.flows.cli", *words], capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), wall, cpu


def main() -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--seconds", type=float, default=120.0, help="budget of each probe")
    options = parser.parse_args()
    print(*HEAD, sep="\n", flush=True)
    for model in options.models:
        for target in options.targets:
            print(measured(model, target, options.seconds), flush=True)


if __name__ == "__main__":
    main()
