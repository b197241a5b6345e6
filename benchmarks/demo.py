"""Times `make demo` as a person sees it: first run, second run, peak memory of the whole process tree.

The limits beside it, in the same run: an empty flow in the same home (the embedded server alone), and stock
transformers loading the same checkpoint and answering the same prompt.

Run it with: .venv/bin/python benchmarks/demo.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
SECONDS_BETWEEN_SAMPLES = 0.25
EMPTY_FLOW = "from prefect import flow\n@flow\ndef nothing() -> None: ...\nnothing()"
STOCK = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
ids = words("The capital of France is", return_tensors="pt").input_ids
print(words.decode(model.generate(ids, max_new_tokens=8, do_sample=False)[0]))
"""


@dataclass(frozen=True)
class Measured:
    """One command: wall seconds, and the peak of the summed PSS of its process tree in bytes."""

    seconds: float
    peak_pss: int


def tree_pss(root: psutil.Process) -> int:
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, FileNotFoundError):
            continue
    return total


def measure(command: list[str], folder: Path, extra: dict[str, str]) -> Measured:
    """Runs the command to its end; its output goes to our standard error.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **extra}, stdout=sys.stderr)
    peak, done = [0], threading.Event()

    def watch() -> None:
        root = psutil.Process(process.pid)
        while not done.wait(SECONDS_BETWEEN_SAMPLES):
            try:
                peak[0] = max(peak[0], tree_pss(root))
            except psutil.NoSuchProcess:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    done.set()
    watcher.join()
    if status:
        raise subprocess.CalledProcessError(status, command)
    return Measured(time.monotonic() - started, peak[0])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="day0-bench-") as scratch:
        folder = Path(scratch)
        home = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        server = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180"}
        demo = [sys.executable, "-m", "day0.flows.demo"]
        rows = [("demo, first run", measure(demo, folder, home))]
        rows.append(
            ("empty flow, same home", measure([sys.executable, "-c", EMPTY_FLOW], folder, home | server))
        )
        rows.append(("demo, second run", measure(demo, folder, home)))
        model = next((folder / ".day0" / "models").glob("*/config.json")).parent
        rows.append(
            (
                "stock transformers, load and 8 tokens",
                measure([sys.executable, "-c", STOCK, str(model)], folder, {}),
            )
        )
        print("| what | seconds | peak PSS, MiB |\n| --- | --- | --- |")
        for name, measured in rows:
            print(f"| {name} | {measured.seconds:.1f} | {measured.peak_pss / 2**20:.0f} |")


if __name__ == "__main__":
    main()
