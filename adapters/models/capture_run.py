"""Asks a process to capture a model: a hang, a crash or a lack of memory there is an anomaly here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from typing import Any

from ..base.operator_capture import Capture, CaptureRequest
from ..base.progress import Progress, silent
from ..base.values import Anomaly
from .bounded_process import Bounds, ask_process
from .merging import builder, merged

SECONDS = 300.0
"""For each request; the largest published model takes 15 s, one that unrolls over its tokens a minute."""
MEMORY = 4 * 2**30
"""Bytes; a capture takes 0.5 GB whatever the size, since nothing has data."""
MAX_ANSWER = 512 * 2**20
"""Bytes; a few megabytes for most models."""
MODULE = "day0.adapters.models.capture_worker"


def ask_capture(
    config: Mapping[str, Any],
    requests: Sequence[CaptureRequest],
    *,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
    seconds: float = SECONDS,
    memory: int = MEMORY,
    progress: Progress = silent,
) -> list[Capture]:
    """One capture a request, in order, with whatever could be had; raises nothing for any config.

    A process that is ended or dies leaves an anomaly `capture_ended` in the capture that it was at, and in
    those that it did not come to.

    Args:
        config: config.json as parsed.
        requests: how to capture it.
        command: argv of the process.
        seconds: for each request, after which it is killed.
        memory: bytes (PSS) at which it is killed.
        progress: told every second that it goes on.
    """
    try:
        builder()
    except PackageNotFoundError as error:
        missing = f"{error.name} is not installed, so no operator can be captured"
        return [_ended(Capture(request=request), missing) for request in requests]
    question = {"config": dict(config), "requests": [request.model_dump() for request in requests]}
    bounds = Bounds(seconds * len(requests), memory, MAX_ANSWER, "capturing operators")
    lines, reason = ask_process(command, question, bounds, progress=progress, step="capturing operators")
    reached = lines[-1][0] if lines else 0
    found = []
    for number, request in enumerate(requests):
        parts = [
            Capture.model_validate({**part, "request": request}) for place, part in lines if place == number
        ]
        whole = merged(request, parts)
        found.append(_ended(whole, reason) if reason and number >= reached else whole)
    return found


def _ended(capture: Capture, reason: str) -> Capture:
    anomaly = Anomaly(code="capture_ended", subject="operators", message=reason)
    return capture.model_copy(update={"anomalies": [*capture.anomalies, anomaly]})
