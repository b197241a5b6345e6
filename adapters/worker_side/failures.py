"""Exceptions as answers: their kind, judged by type and text, and the frames that matter."""

from __future__ import annotations

import re
import traceback
from typing import Any, Dict, List, Optional, Sequence, Tuple

from day0_worker.error_places import locate
from day0_worker.stack import ERROR_KINDS, StackError

_MAX_TEXT = 4000
_FRAMES = 8
_CAUSES = 5

# The first rule that matches decides; texts are those of torch, ONNX Runtime, OpenVINO, transformers and
# of the vendor adapters quoted in the issue threads of their repositories.
_RULES: Sequence[Tuple[str, str]] = (
    ("memory", r"out of memory|OutOfMemory|can't allocate memory|not enough memory|bad_alloc|"
               r"failed to allocate memory|DefaultCPUAllocator"),
    ("key_mismatch", r"missing key\(s\) in state_dict|unexpected key\(s\) in state_dict|size mismatch for |"
                     r"error\(s\) in loading state_dict"),
    # A kernel is there for other types; torch names the C++ type.
    ("dtype", r"not implemented for '?\w*(?:half|float|double|int|long|char|byte|short|bool|complex)|"
              r"unsupported (?:scalar |data |element )?(?:d?type|precision)|invalid scalar type|"
              r"expected (?:scalar|object of|m1 and m2).{0,20}type|must have the same dtype|dtype mismatch|"
              r"is not (?:a )?supported (?:data ?type|dtype)|type '?tensor\(\w+\)'? of input parameter|"
              r"promotion for .{0,40}types|data type .{0,60}not supported|expected .{0,30}dtype|"
              r"does not support (?:bfloat16|float16|fp16|bf16|float64|half|double|int)|"
              r"not supported in this architecture"),
    ("missing_operator", r"could not (?:run|find) .{0,80}(?:backend|operator|kernel|implementation)|"
                         r"not implemented for the |no kernel|is not currently implemented|"
                         r"no conversion (?:rule|function|for)|no decompos|no onnx function found|"
                         r"unsupportedoperator|not a registered|is not a registered function/op|"
                         r"unsupported (?:onnx )?(?:op|operator|node)s?\b|cannot be converted|"
                         r"operator .{0,80}not (?:found|supported|implemented)|"
                         r"'_opnamespace' .{0,60}has no attribute"),
    ("shape", r"shape|reduction dim|merge dim|size of tensor|sizes of tensors|dimension|must match|broadcast|"
              r"stride|expected \d+d|index out of range|out of bounds"),
    ("unsupported", r"not supported|unsupported|does not support"),
)  # fmt: skip


def classify(error: BaseException) -> str:
    """The kind of an exception."""
    refusal = _refusal(error)
    if refusal is not None:
        return refusal.kind if refusal.kind in ERROR_KINDS else "runtime"
    if isinstance(error, (ImportError, ModuleNotFoundError)):
        return "import"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "memory"
    texts = [f"{type(cause).__name__}: {first_cause(str(cause))}" for cause in _causes(error)]
    for kind, pattern in _RULES:
        if any(re.search(pattern, text, re.IGNORECASE) for text in texts):
            return kind
    return "unsupported" if isinstance(error, NotImplementedError) else "runtime"


def plain(text: str) -> str:
    """An error's words without colours and without the instructions that the ONNX exporter wraps them in."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    head, mark, tail = text.partition("## Exception summary")
    summary = tail.split("(Refer to the full stack trace")[0].strip()
    return f"{head.splitlines()[0]} {summary}" if mark and summary else text


def first_cause(text: str) -> str:
    """The part of an error's words that names the cause; what follows it repeats arguments and shapes."""
    told = plain(text)
    _, mark, summary = told.partition("<class '")
    return summary.partition("⬆️")[0] if mark else told


def _refusal(error: BaseException) -> Optional[StackError]:
    """What a stack itself said; an exporter that was tracing meanwhile wraps all errors in its own."""
    return next((cause for cause in _causes(error) if isinstance(cause, StackError)), None)


def _causes(error: BaseException) -> List[BaseException]:
    causes = [error]
    while len(causes) < _CAUSES and causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return causes


def answer(error: BaseException) -> Dict[str, Any]:
    """The exception as the `error` object of an answer: kind, type, message, place, frames oldest first."""
    error = _refusal(error) or error
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    text = plain(str(error)).strip() or type(error).__name__
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text = f"{text} (caused by {type(error.__cause__).__name__}: {error.__cause__})"
    return {
        "kind": classify(error),
        "type": type(error).__name__,
        "message": text[:_MAX_TEXT],
        "place": locate("\n".join(plain(str(cause)) for cause in _causes(error))),
        "frames": [
            f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line or ''}"[:300] for frame in frames
        ],
    }
