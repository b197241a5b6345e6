"""Times staging and verification of weights, each beside a peer in the same run.

Staging: a release of 16 shards of 60 MiB comes from a hub on loopback (a process of its own) into an empty
cache; the peer is `huggingface_hub.snapshot_download` over plain HTTP with eight workers, which checks sizes
but no hashes and forces nothing to disk. Verification: a folder of 1 GiB in bf16 and in fp8; the peer reads
and hashes the same file with hashlib and looks at no number. Every measured run is a fresh process; the
two sides take turns.

Run it with: .venv/bin/python benchmarks/staging.py
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.raw_checkpoints import header_of  # noqa: E402  # found only now

PAIRS = 3
SHARDS, SHARD_BYTES = 16, 60 * 2**20  # the local hub vouches for the content of files up to 64 MiB
MODEL = "org/staged"
_CLOCK = "import sys, time\n"
_TOLD = """
took = time.monotonic() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took, int(peak.split()[1]) * 1024)
"""
HUB = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.local_hub import LocalHub
hub = LocalHub()
hub.add(sys.argv[2], Path(sys.argv[3]))
print(hub.url, flush=True)
sys.stdin.read()
"""
STAGE = """
from day0.adapters.sources.resolve import open_source
from day0.adapters.sources.staging import Wanted, stage_files
source = open_source(sys.argv[1])
began = time.monotonic()
stage_files(source, [Wanted(file.path) for file in source.files()])
"""
DOWNLOAD = """
from huggingface_hub import snapshot_download
from huggingface_hub.utils import disable_progress_bars
disable_progress_bars()
began = time.monotonic()
snapshot_download(sys.argv[1], max_workers=8)
"""
VERIFY = """
import tempfile
from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.verify import verify_weights
release = open_release(sys.argv[1])
with tempfile.TemporaryDirectory() as store:
    began = time.monotonic()
    verify_weights(release, RunStore(store))
"""
HASH = """
import hashlib
state, buffer = hashlib.sha256(), memoryview(bytearray(2**22))
began = time.monotonic()
with open(sys.argv[1] + "/model.safetensors", "rb", buffering=0) as file:
    while count := file.readinto(buffer):
        state.update(buffer[:count])
"""


@dataclass(frozen=True)
class Run:
    """One process: seconds of the work alone, CPU seconds and peak resident bytes of all of it."""

    seconds: float
    cpu: float
    peak: int


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="day0-bench-") as scratch:
        print("| what | GB/s | CPU s per GB | peak MiB |\n| --- | --- | --- | --- |")
        _staging(Path(scratch))
        for dtype in ("BF16", "F8_E4M3"):
            _verification(Path(scratch) / dtype, dtype)


def _staging(scratch: Path) -> None:
    folder, chance = scratch / "release", np.random.default_rng(1)
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for shard in range(SHARDS):
        data = chance.bytes(SHARD_BYTES)
        (folder / f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors").write_bytes(data)
    sides = {"day0 staging, every hash checked": STAGE, "huggingface_hub, 8 workers": DOWNLOAD}
    taken: dict[str, list[Run]] = {name: [] for name in sides}
    with _hub(folder) as hub:
        for _ in range(PAIRS):
            for name, code in sides.items():
                cache = scratch / "cache"
                environment = {"HF_ENDPOINT": hub, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": "1"}
                taken[name].append(_measured(code, MODEL, environment))
                shutil.rmtree(cache)
    _rows(taken, SHARDS * SHARD_BYTES)
    shutil.rmtree(folder)


def _verification(folder: Path, dtype: str) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    values = np.random.default_rng(2).standard_normal(2**22).astype(np.float32)
    block = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if dtype != "BF16":
        block = np.random.default_rng(3).integers(0, 0x7F, len(block), dtype=np.uint8).tobytes()
    columns = 2**30 // 4096 // (2 if dtype == "BF16" else 1)
    header, length = header_of({"model.layers.0.mlp.up_proj.weight": (dtype, (columns, 4096))})
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(length // len(block)):
            file.write(block)
    sides = {f"day0 --verify, {dtype}": VERIFY, f"hashlib alone, {dtype}": HASH}
    taken: dict[str, list[Run]] = {name: [] for name in sides}
    for _ in range(PAIRS):
        for name, code in sides.items():
            taken[name].append(_measured(code, str(folder), {}))
    _rows(taken, length)
    shutil.rmtree(folder)


def _rows(taken: dict[str, list[Run]], size: int) -> None:
    for name, runs in taken.items():
        seconds, cpu, peak = (statistics.median(getattr(run, key) for run in runs) for key in _KEYS)
        print(f"| {name} | {size / seconds / 1e9:.2f} | {cpu / size * 1e9:.2f} | {peak / 2**20:.0f} |")


_KEYS = ("seconds", "cpu", "peak")


def _measured(code: str, subject: str, environment: dict[str, str]) -> Run:
    process = subprocess.Popen(
        [sys.executable, "-c", _CLOCK + code + _TOLD, subject],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise SystemExit(f"a measured run ended with status {process.returncode}:\n{code}")
    took, peak = told.split()[-2:]
    return Run(float(took), usage.ru_utime + usage.ru_stime, int(peak))


@contextmanager
def _hub(folder: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HUB, str(ROOT / "tests"), MODEL, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"\n{time.monotonic() - began:.0f} s in all", file=sys.stderr)
