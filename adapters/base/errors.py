"""The one exception tree. Each error is one sentence for a person: what, where, what to do, a stable code.

Day0Error
├── InputError            the command or its input cannot be used; exit status 2, no record is made
│   ├── AccessError       the release is there and listed, but this account may not read its files
│   └── UnansweredError   one file of it, tried again and again, was not handed out properly
├── SourceError           a file of the release cannot be listed or read
├── CheckpointError       a tensor file is not what its format demands
├── SkeletonError         the structure cannot be built (unknown type, needs repository code)
├── UnsupportedError      the target lacks the capability that was asked for
└── WorkerError           the process in which a target runs did not answer
    ├── WorkerCrashed     it died (signal or exit status)
    ├── WorkerTimeout     it passed its time limit and was killed
    ├── WorkerOutOfMemory it passed its memory limit and was killed
    ├── WorkerUnusable    it could not start (import error, missing Python)
    └── RemoteError       it answered with an error of the stack's own
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


class Day0Error(Exception):
    """An error that a person reads.

    Args:
        message: what happened and where, with the values met; one sentence.
        code: stable identifier, listed in docs/errors.md.
        remedy: what to do next; one sentence, or empty where nothing helps.
    """

    default_code = "E000"

    def __init__(self, message: str, *, code: str | None = None, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.remedy = remedy

    def __str__(self) -> str:
        sentence = self.message.rstrip(".")
        tail = f" {self.remedy}" if self.remedy else ""
        return f"{sentence} [{self.code}].{tail}"


class InputError(Day0Error):
    """The command or its input cannot be used."""

    default_code = "E100"


class AccessError(InputError):
    """The release is there and listed, but this account may not read its files."""

    default_code = "E108"


class UnansweredError(InputError):
    """A server that answers was asked for one file of a known release and did not hand it out properly.

    The other files of the release may be readable all the same; whoever can do without this one goes on.
    """

    default_code = "E133"


class SourceError(Day0Error):
    """A file of the release cannot be listed or read."""

    default_code = "E200"


class CheckpointError(Day0Error):
    """A tensor file is not what its format demands."""

    default_code = "E300"


class SkeletonError(Day0Error):
    """The structure of the model cannot be built."""

    default_code = "E400"


class UnsupportedError(Day0Error):
    """The target lacks the capability that was asked for."""

    default_code = "E500"


class WorkerError(Day0Error):
    """The process in which a target runs did not answer.

    Args:
        message: see `Day0Error`.
        log: the last lines that the worker wrote, oldest first.
        code: see `Day0Error`.
        remedy: see `Day0Error`.
    """

    default_code = "E600"

    def __init__(
        self, message: str, *, log: Sequence[str] = (), code: str | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, code=code, remedy=remedy)
        self.log = tuple(log)


class WorkerCrashed(WorkerError):
    """The worker died by a signal or left with an exit status of its own."""

    default_code = "E601"


class WorkerTimeout(WorkerError):
    """The worker passed its time limit and was killed."""

    default_code = "E602"


class WorkerOutOfMemory(WorkerError):
    """The worker passed its memory limit and was killed."""

    default_code = "E603"


class WorkerUnusable(WorkerError):
    """The worker could not start."""

    default_code = "E604"


class RemoteError(WorkerError):
    """The worker lives and answered with an error of the stack's own.

    Args:
        message: see `Day0Error`.
        kind: one of `day0_worker.stack.ERROR_KINDS`
            (`missing_operator dtype shape key_mismatch double_fault memory import unsupported runtime`).
        type_name: the exception's class name in the worker.
        log: the last frames of the worker's traceback and its last log lines.
        place: those of `op`, `dtype`, `shape` and `node` that the stack's words name.
    """

    default_code = "E605"

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        type_name: str,
        log: Sequence[str] = (),
        place: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, log=log)
        self.kind = kind
        self.type_name = type_name
        self.place = dict(place or {})


_ADDRESS = re.compile(r"(<[^<>]*?)(?: object)? at 0x[0-9a-f]+>")
_HINT = re.compile(r"\.?\s*Hint:.*")


def words_of(error: BaseException, limit: int = 300) -> str:
    """Type and words of a foreign error in one line: no addresses, which differ from run to run, no hints.

    Args:
        error: as raised.
        limit: characters of its words.
    """
    words = _HINT.sub("", _ADDRESS.sub(r"\1>", " ".join(str(error).split())))
    return f"{type(error).__name__}: {words[:limit]}"
