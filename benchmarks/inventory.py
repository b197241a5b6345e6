"""Times the inventory of releases at full size, beside huggingface_hub on the same hub and `json.loads`.

The release is a sparse copy of Kimi-K2.5 (208,550 tensors, 64 shards): headers, index and config are as
released, the data are holes. The hub is a process on loopback that waits 50 ms before each answer. Every
measured run is a fresh process with an empty cache, imports included; the two sides take turns.

Run it with: .venv/bin/python benchmarks/inventory.py
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.local_hub import LocalHub  # noqa: E402  # the path to it is set above
from support.raw_checkpoints import write_release  # noqa: E402  # the path to it is set above

PAIRS = 5
DELAY = 0.05  # seconds before each answer of the hub
RELEASE = "moonshotai--Kimi-K2.5"
MODEL = "moonshotai/Kimi-K2.5"
OURS = """
import sys
from day0.flows.cli import main
main(["inventory", sys.argv[1], "--json", "--store", sys.argv[2]])
"""
PEER = """
import sys
from huggingface_hub import HfApi
metadata = HfApi().get_safetensors_metadata(sys.argv[1])
assert len(metadata.weight_map) == 208_550
"""
PARSE = """
import json, sys, time
from pathlib import Path
raws = []
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with path.open("rb") as file:
        raws.append(file.read(int.from_bytes(file.read(8), "little")))
began = time.process_time()
for raw in raws:
    json.loads(raw)
print(time.process_time() - began)
"""
HEADERS = """
import sys, time
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.checkpoints.shard_headers import read_headers
from day0.adapters.sources.local import open_source
source = open_source(sys.argv[1])
sizes = {file.path: file.size for file in source.files()}
shards = [path for path in sizes if path.endswith(".safetensors")]
began = time.process_time()
read_headers(source, shards, sizes)
print(time.process_time() - began)
"""
RECORD = """
import sys, time
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.take import take_inventory
began = time.process_time()
take_inventory(open_release(sys.argv[1]))
print(time.process_time() - began)
"""


@dataclass(frozen=True)
class Run:
    """One process: wall and CPU seconds, peak resident bytes, bytes that the hub served for it."""

    wall: float
    cpu: float
    peak: int
    served: int


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="day0-bench-") as scratch:
        folder = Path(scratch) / "release"
        write_release(folder, RELEASE)
        print("| what | wall s | CPU s | peak MiB | bytes / (headers + index) |")
        print("| --- | --- | --- | --- | --- |")
        _hub_rows(folder, Path(scratch))
        print("\n| local folder | CPU s | times json.loads of the headers |\n| --- | --- | --- |")
        _local_rows(folder)


def _hub_rows(folder: Path, scratch: Path) -> None:
    needed = _header_bytes(folder) + (folder / "model.safetensors.index.json").stat().st_size
    runs: dict[str, list[Run]] = {"day0 inventory": [], "huggingface_hub": []}
    with _hub(folder) as hub:
        for _ in range(PAIRS):
            for name, code in (("day0 inventory", OURS), ("huggingface_hub", PEER)):
                runs[name].append(_measured(code, MODEL, hub, scratch / "cache"))
    for name, taken in runs.items():
        wall, cpu, peak, served = (
            statistics.median(getattr(run, key) for run in taken) for key in ("wall", "cpu", "peak", "served")
        )
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | {peak / 2**20:.0f} | {served / needed:.3f} |")
    walls, cpus = (
        statistics.median(
            getattr(ours, key) / getattr(theirs, key) for ours, theirs in zip(*runs.values(), strict=True)
        )
        for key in ("wall", "cpu")
    )
    print(f"| median ratio of {PAIRS} pairs | {walls:.2f} | {cpus:.2f} | | |")


def _local_rows(folder: Path) -> None:
    taken: dict[str, list[float]] = {}
    for _ in range(PAIRS):
        for name, code in (
            ("json.loads", PARSE),
            ("headers read and checked", HEADERS),
            ("full record", RECORD),
        ):
            taken.setdefault(name, []).append(float(_output(code, str(folder))))
    base = taken["json.loads"]
    for name, seconds in taken.items():
        ratio = statistics.median(one / two for one, two in zip(seconds, base, strict=True))
        print(f"| {name} | {statistics.median(seconds):.2f} | {ratio:.2f} |")


@contextmanager
def _hub(folder: Path) -> Iterator[LocalHub]:
    hub = LocalHub()
    try:
        hub.add(MODEL, folder)
        hub.delay = DELAY
        yield hub
    finally:
        hub.close()


def _measured(code: str, model: str, hub: LocalHub, cache: Path) -> Run:
    for folder in (cache, cache.parent / "store"):
        shutil.rmtree(folder, ignore_errors=True)
    hub.forget()
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0"}
    began = time.monotonic()
    command = [sys.executable, "-c", code, model, str(cache.parent / "store")]
    with (cache.parent / "said.txt").open("wb") as said:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=said, stderr=said)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    if status:
        said_last = (cache.parent / "said.txt").read_text()[-500:]
        raise RuntimeError(f"it ended with status {os.waitstatus_to_exitcode(status)}: {said_last}")
    process.returncode = 0
    return Run(wall, _cpu(usage), usage.ru_maxrss * 1024, hub.bytes_of("*/resolve/*"))


def _cpu(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _output(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command: Sequence[str] = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def _header_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            total += 8 + int.from_bytes(file.read(8), "little")
    return total


if __name__ == "__main__":
    main()
