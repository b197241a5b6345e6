"""Asks a process what a config implies: bounded in time, memory and answer, without network or secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from ..base.progress import Progress, silent
from ..base.worker_environment import worker_environment

SECONDS = 300.0
"""Importing torch and transformers takes 5 s, the largest published model another 15 s, on two busy cores."""
MEMORY = 4 * 2**30
"""Bytes; building takes 0.5 GB whatever the size, since nothing has data."""
MAX_ANSWER = 256 * 2**20
"""Bytes; a million tensors' names and shapes."""
MODULE = "day0.adapters.models.expected_worker"
STEP = "working out what the config implies"
_BY = "transformers, in a process of its own"
_TICK = 1.0  # seconds between two signs of life


@dataclass(frozen=True)
class ImpliedTensor:
    """One tensor that the config implies; see `expected_tensors.ExpectedTensor`."""

    name: str
    published: str
    dtype: str
    shape: tuple[int, ...]
    linear: bool
    converted: bool
    optional: bool


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        reason: why nothing is known; empty where the rest is filled.
        architecture: class that was built.
        tensors: that the config implies, each once.
        tied: parameter -> parameter whose tensor it shares.
        names: checkpoint name -> the model's own, where they differ, for those that were asked about.
        ignored: of the names asked about those which the model's class leaves alone.
        operators: operator, phase, calls; the same operator may come several times.
        failed: phase -> why its operators are not known.
    """

    reason: str = ""
    architecture: str = ""
    tensors: Sequence[ImpliedTensor] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    ignored: Sequence[str] = ()
    operators: Sequence[tuple[str, str, int]] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def builder() -> str:
    """What works it out, e.g. `transformers 5.24.0`; empty where it is not installed."""
    try:
        return f"transformers {version('transformers')}"
    except PackageNotFoundError:
        return ""


def ask_expected(
    config: Mapping[str, Any],
    asked: Iterable[str] = (),
    *,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
    seconds: float = SECONDS,
    memory: int = MEMORY,
    progress: Progress = silent,
) -> Answer:
    """What the config implies, or the reason why that is not known; raises nothing for any config.

    Args:
        config: config.json as parsed.
        asked: names of a checkpoint, to be told by the model's own names.
        command: argv of the process.
        seconds: after which it is killed.
        memory: bytes (PSS) at which it is killed.
        progress: told every second that it goes on.
    """
    if not builder():
        return Answer(reason="transformers is not installed")
    question = json.dumps({"config": dict(config), "asked": list(asked)}).encode()
    with tempfile.TemporaryDirectory(prefix="day0-expected-") as home:
        log = Path(home) / "log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=home,
                env=worker_environment(os.environ, home),
            )
            with _signs_of_life(progress):
                lines, ended = _converse(process, question, seconds, memory)
        if not lines or lines[-1] is not None:
            return Answer(reason=ended or _last_words(log, process.returncode))
    return _answer(lines[:-1])


@contextmanager
def _signs_of_life(progress: Progress) -> Iterator[None]:
    """Says every second how long it has taken; the process itself cannot tell how far it is."""
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_TICK):
            progress(STEP, 0, 1, f"{_BY}, {time.monotonic() - began:.0f} s")

    progress(STEP, 0, 1, _BY)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        progress(STEP, 1, 1, f"{_BY}, {time.monotonic() - began:.0f} s")


def _converse(
    process: subprocess.Popen[bytes], question: bytes, seconds: float, memory: int
) -> tuple[list[Any], str]:
    """The answer's lines and, where the process was ended before it was done, the reason."""
    from ..base.worker_memory import MemoryWatch  # reading process memory is needed only here

    ended: list[str] = []

    def end(reason: str) -> None:
        ended.append(reason)
        process.kill()

    timer = threading.Timer(seconds, end, [f"the model was not built within {seconds:g} s"])
    watch = MemoryWatch(process.pid, memory, lambda: end(f"building the model took more than {memory} bytes"))
    assert process.stdin is not None
    assert process.stdout is not None
    writer = threading.Thread(target=_write, args=(process.stdin, question), daemon=True)
    timer.start()
    writer.start()
    try:
        lines = _lines(process.stdout, end)
    finally:
        timer.cancel()
        watch.stop()
        if process.poll() is None and ended:
            process.kill()
        process.wait()
        writer.join()
        process.stdout.close()
    return lines, ended[0] if ended else ""


def _write(stdin: IO[bytes], question: bytes) -> None:
    try:
        stdin.write(question)
        stdin.close()
    except OSError:  # it died first; its exit status tells
        return


def _lines(stdout: IO[bytes], end: Any) -> list[Any]:
    lines: list[Any] = []
    size = 0
    for line in stdout:
        size += len(line)
        if size > MAX_ANSWER:
            end(f"the config implies more tensors than fit into {MAX_ANSWER} bytes")
            break
        try:
            lines.append(json.loads(line))
        except ValueError:  # cut off by its death
            break
    return lines


def _last_words(log: Path, status: int | None) -> str:
    words = log.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
    said = f": {words[-1][:300]}" if words else ""
    return f"the process that builds the model ended with status {status}{said}"


def _answer(lines: Sequence[Any]) -> Answer:
    head, rows = lines[0], lines[1:]
    if "reason" in head:
        return Answer(reason=head["reason"])
    return Answer(
        architecture=head["architecture"],
        tensors=[
            ImpliedTensor(
                name, published or name, dtype, tuple(shape), "l" in flags, "c" in flags, "o" in flags
            )
            for name, published, dtype, shape, flags in rows
        ],
        tied=head["tied"],
        names=head["names"],
        ignored=head["ignored"],
        operators=[(op, phase, count) for op, phase, count in head["operators"]],
        failed={subject: message for subject, message in head["failed"]},
    )
