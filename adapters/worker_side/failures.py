"""Exceptions as answers: their kind, judged by type and text, and the frames that matter."""

from __future__ import annotations

import re
import traceback
from typing import Any, Dict, Sequence, Tuple

from day0_worker.stack import ERROR_KINDS, StackError

_MAX_TEXT = 4000
_FRAMES = 8

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
    ("shape", r"shape|size of tensor|sizes of tensors|dimension|must match|broadcast|stride|"
              r"expected \d+d|index out of range|out of bounds"),
    ("unsupported", r"not supported|unsupported|does not support"),
)  # fmt: skip


def classify(error: BaseException) -> str:
    """The kind of an exception."""
    if isinstance(error, StackError):
        return error.kind if error.kind in ERROR_KINDS else "runtime"
    if isinstance(error, (ImportError, ModuleNotFoundError)):
        return "import"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "memory"
    causes = [error]
    while len(causes) < 5 and causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for kind, pattern in _RULES:
        if any(re.search(pattern, f"{type(cause).__name__}: {cause}", re.IGNORECASE) for cause in causes):
            return kind
    return "unsupported" if isinstance(error, NotImplementedError) else "runtime"


def answer(error: BaseException) -> Dict[str, Any]:
    """The exception as the `error` object of an answer: kind, type, message, frames oldest first."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    text = str(error).strip() or type(error).__name__
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text = f"{text} (caused by {type(error.__cause__).__name__}: {error.__cause__})"
    return {
        "kind": classify(error),
        "type": type(error).__name__,
        "message": text[:_MAX_TEXT],
        "frames": [
            f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line or ''}"[:300] for frame in frames
        ],
    }
