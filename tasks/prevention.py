"""Why a stage could not do its work."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.errors import (
    Day0Error,
    RemoteError,
    UnsupportedError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from day0.adapters.base.values import Value

# A subclass before its base.
_NUMBERS: tuple[tuple[type[Day0Error], int], ...] = (
    (WorkerCrashed, 901),
    (WorkerTimeout, 902),
    (WorkerOutOfMemory, 903),
    (RemoteError, 905),
    (WorkerError, 904),
    (UnsupportedError, 906),
    (Day0Error, 900),
)
_INTERNAL = 908
_ASKING_FAILED = 904
_LOG_LINES = 20


class Prevention(Value):
    """Why a stage could not do its work.

    Attributes:
        number: of the finding's code, after the stage's prefix.
        about: `target` or `model`.
        message: one sentence.
        evidence: the worker's last lines, or the log that has the traceback.
        remedy: what to do; empty: the catalogue's.
    """

    number: int
    about: str
    message: str
    evidence: Sequence[str] = ()
    remedy: str = ""


def prevention_of(error: Day0Error, *, asking: bool = False) -> Prevention:
    """What an error that ended a whole stage means.

    Args:
        error: as it was raised.
        asking: it was raised when the target was asked what it is, before any stage.
    """
    of_worker = isinstance(error, WorkerError)
    number = next(number for kind, number in _NUMBERS if isinstance(error, kind))
    return Prevention(
        number=_ASKING_FAILED if asking and of_worker else number,
        about="target" if of_worker or isinstance(error, UnsupportedError) else "model",
        message=f"{error.message.rstrip('.')} [{error.code}].",
        evidence=error.log[-_LOG_LINES:] if isinstance(error, WorkerError) else (),
        remedy=error.remedy,
    )


def unforeseen(error: Exception, log: str) -> Prevention:
    """What an error that is no `Day0Error` means; its traceback lies in the file `log`."""
    return Prevention(
        number=_INTERNAL,
        about="model",
        message=f"The stage ended with an unforeseen {type(error).__name__} [E900].",
        evidence=(f"traceback in {log}",),
    )
