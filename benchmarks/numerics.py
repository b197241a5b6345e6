"""Speed and memory of numerics, each beside what it cannot do without, measured in the same run.

    python benchmarks/numerics.py [--only small|large] [--layers 4] [--experts 256] [--model FOLDER]

Small: SmolLM2-135M on 512 tokens in bf16; the limit is what stock transformers takes for the passes that a
comparison needs (the reference in fp32 and in bf16, the target twice) in one process.

Large: a model of DeepSeek-R1's width with fewer layers (`numerics_release`), served by a hub on loopback in a
process of its own that makes the weights as they are asked for; nothing of them touches a disk. The limit is
to read the same bytes from the same server and to dequantise them to fp32, by our own kernels and by stock
torch, the next ones on their way meanwhile, and nothing else. Memory is that of the tree (PSS), seen from
outside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from numerics_release import MODEL, write_cut

from day0.adapters.base.worker_memory import MemoryWatch
from day0.flows.demo_model import ensure_demo_model

HERE = Path(__file__).parent

LAYERS_OF_RELEASE, DENSE_OF_RELEASE = 61, 3
TIMES_READING = 2.5
TIMES_BYTES = 1.05
MOST_MEMORY = 8 * 2**30
ALONE = {"reading, dequantising by our kernels": "read", "reading, dequantising by stock torch": "plain"}


@dataclass(frozen=True)
class Side:
    """One process.

    Attributes:
        said: by it.
        peak: bytes (PSS) of it and all below it.
        data: bytes of tensors that the server sent.
        other: bytes of everything else.
        cpu: seconds of the server.
        requests: for parts of weights.
        load: of the machine before and after.
    """

    said: dict[str, Any]
    peak: int
    data: int
    other: int
    cpu: float
    requests: int
    load: tuple[float, float]


class Server:
    """The hub's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line()

    def counts(self) -> dict[str, Any]:
        """What it did so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counted: dict[str, Any] = json.loads(self._line())
        return counted

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def large(layers: int, experts: int, vocabulary: int) -> None:
    with tempfile.TemporaryDirectory(prefix="day0-bench-") as scratch:
        folder = Path(scratch) / "release"
        total = write_cut(folder, layers, experts, vocabulary)
        with _served(folder) as server:
            compared = _run("compare", Path(scratch) / "compare", server)
            print(json.dumps(compared.said, indent=1), file=sys.stderr)
            alone = {name: _run(what, Path(scratch) / what, server) for name, what in ALONE.items()}
    _report(compared, alone, total, layers)


def _report(compared: Side, alone: Mapping[str, Side], total: int, layers: int) -> None:
    print(f"{total / 1e9:.2f} GB of tensors, {layers} layers")
    print("| what | s | CPU s | GB served | GB/s | peak GiB | server's CPU s | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, side in {"numerics": compared, **alone}.items():
        said = side.said
        cells = (
            f"{said['seconds']:.1f}", f"{said['cpu'] + said['cpu_below']:.0f}", f"{side.data / 1e9:.2f}",
            f"{side.data / said['seconds'] / 1e9:.2f}", f"{side.peak / 2**30:.2f}", f"{side.cpu:.1f}",
            f"{side.load[0]:.1f}, {side.load[1]:.1f}",
        )  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| figure | value | limit |\n| --- | --- | --- |")
    print(f"| peak memory, GiB | {compared.peak / 2**30:.2f} | {MOST_MEMORY / 2**30:.2f} |")
    print(f"| bytes served / bytes of the tensors | {compared.data / total:.4f} | {TIMES_BYTES} |")
    for name, side in alone.items():
        least = side.said["seconds"] * compared.data / side.data
        print(f"| time / {name} | {compared.said['seconds'] / least:.2f} | {TIMES_READING} |")
    print(f"\n{_extrapolated(compared, layers)}")


def _extrapolated(compared: Side, layers: int) -> str:
    """From the time of each node of the cut, as its progress tells it."""
    took: dict[str, float] = compared.said["took"]
    dense, sparse = took["model.layers.0"], took[f"model.layers.{layers - 1}"]
    own = sum(seconds for name, seconds in took.items() if not name.startswith("model.layers."))
    whole = own + DENSE_OF_RELEASE * dense + (LAYERS_OF_RELEASE - DENSE_OF_RELEASE) * sparse
    return (
        f"Extrapolated, not measured: all {LAYERS_OF_RELEASE} layers, {DENSE_OF_RELEASE} dense at "
        f"{dense:.0f} s, the others at {sparse:.0f} s, all else {own:.0f} s: {whole / 3600:.1f} h"
    )


def _run(what: str, store: Path, server: Server, *more: str) -> Side:
    before, load = server.counts(), os.getloadavg()[0]
    environment = {
        "HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(store / "hub"), "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, str(HERE / "numerics_side.py"), what, MODEL, str(store / "runs"), *more],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    watch = MemoryWatch(process.pid, 0, lambda: None)
    assert process.stdout is not None
    told = process.stdout.read()
    watch.stop()
    if process.wait():
        raise SystemExit(f"{what} ended with status {process.returncode}")
    after = server.counts()
    return Side(
        said=json.loads(told.splitlines()[-1]),
        peak=watch.peak,
        data=after["data"] - before["data"],
        other=after["other"] - before["other"],
        cpu=after["cpu"] - before["cpu"],
        requests=after["requests"] - before["requests"],
        load=(load, os.getloadavg()[0]),
    )


@contextmanager
def _served(folder: Path) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "numerics_server.py"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Server(process)
    finally:
        process.communicate(timeout=10)


def small(model: Path | None) -> None:
    """SmolLM2-135M, 512 tokens: the comparison against the passes that it needs."""
    with tempfile.TemporaryDirectory(prefix="day0-bench-") as work:
        folder = model or ensure_demo_model(Path(work))
        load = os.getloadavg()[0]
        done = subprocess.run(
            [sys.executable, str(HERE / "numerics_side.py"), "small", str(folder), f"{work}/runs"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    said = json.loads(done.stdout.splitlines()[-1])
    needed = said["stock"]["float32"] + 3 * said["stock"]["bfloat16"]
    print(f"SmolLM2-135M, {said['tokens']} tokens, verdict {said['verdict']}, load {load:.1f}")
    fp32, bf16 = said["stock"]["float32"], said["stock"]["bfloat16"]
    print(f"  stock fp32 {fp32:.1f} s, bf16 {bf16:.1f} s; needed {needed:.1f} s")
    print(f"  comparison {said['seconds']:.1f} s: {said['seconds'] / needed:.2f} times (3 asked)")
    print(f"  with draft and reference check {said['whole_seconds']:.1f} s")
    print(f"  peak {said['own_peak'] / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("small", "large"))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--model", type=Path, help="a folder with SmolLM2-135M; made where none is given")
    parser.add_argument("--vocabulary", type=int, default=129_280)
    asked = parser.parse_args()
    if asked.only != "large":
        small(asked.model)
    if asked.only != "small":
        large(asked.layers, asked.experts, asked.vocabulary)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"\n{time.monotonic() - began:.0f} s in all", file=sys.stderr)
