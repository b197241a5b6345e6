"""Asks a process what a config implies: bounded in time, memory and answer, without network or secrets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..base.progress import Progress, silent
from .bounded_process import Bounds, ask_process

SECONDS = 300.0
"""Importing torch and transformers takes 5 s, the largest published model another 15 s, on two busy cores."""
MEMORY = 4 * 2**30
"""Bytes; building takes 0.5 GB whatever the size, since nothing has data."""
MAX_ANSWER = 256 * 2**20
"""Bytes; a million tensors' names and shapes."""
MODULE = "day0.adapters.models.expected_worker"
STEP = "working out what the config implies"


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
    question = {"config": dict(config), "asked": list(asked)}
    bounds = Bounds(seconds, memory, MAX_ANSWER, "building the model")
    lines, reason = ask_process(command, question, bounds, progress=progress, step=STEP)
    return Answer(reason=reason) if reason else _answer(lines)


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
