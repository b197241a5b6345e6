"""How a failed call of a target is classed, in one way for all stages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from day0.adapters.base.errors import (
    Day0Error,
    RemoteError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
    WorkerUnusable,
)

RAN = "ran"
FAILURES = (
    "missing_operator", "dtype", "shape", "key_mismatch", "memory", "crash", "hang", "import", "unsupported",
    "nonfinite", "runtime", "not_run",
)  # fmt: skip
"""Classes of failure; `nonfinite` ran but gave NaN or infinity, `not_run` was not tried."""

_WHERE = re.compile(
    r"^\S+ failed in \w+: |\bException from \S+:\d+:? ?|(?<=failed) at \S+:\d+|"
    r"Check 'false' failed(?: at \S+:\d+)?: "
)
"""What the worker puts before a stack's words, and where in C++ an exception passed (OpenVINO says it each
time)."""
_LOG_LINES = 12
_DETAIL_CHARACTERS = 500


def outcome_of(error: Day0Error) -> str:
    """The class of failure, out of `FAILURES`."""
    match error:
        case WorkerTimeout():
            return "hang"
        case WorkerOutOfMemory():
            return "memory"
        case WorkerCrashed():
            return "crash"
        case WorkerUnusable():
            return "import"
        case RemoteError(kind=kind):
            return kind if kind in FAILURES else "runtime"
        case UnsupportedError():
            return "unsupported"
    return "runtime"


def detail_of(error: Day0Error) -> str:
    """The error in one line, without what differs from run to run."""
    return said(error)[:_DETAIL_CHARACTERS]


def said(error: Day0Error) -> str:
    """The stack's own words in one line, without where in its source it was when it said them."""
    text = " ".join(error.message.split())
    return _WHERE.sub("", text) if isinstance(error, RemoteError) else text


def log_of(error: Day0Error) -> Sequence[str]:
    """The last lines that the worker wrote, as evidence."""
    return tuple(error.log[-_LOG_LINES:]) if isinstance(error, WorkerError) else ()
