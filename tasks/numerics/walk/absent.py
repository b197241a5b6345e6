"""Why a node's weights are not there: the tensor files that are absent, and what to do about it."""

from __future__ import annotations

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.errors import Day0Error

_CODES = ("E330", "E461")
_NAMED = 3


def with_files(error: Day0Error, checkpoint: Checkpoint) -> Day0Error:
    """The error with the absent files, where weights are lacking and files are; else as it is."""
    if error.code not in _CODES:
        return error
    absent = absent_files(checkpoint)
    if absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        named = ", ".join(absent[:_NAMED]) + more
        be = "is" if len(absent) == 1 else "are"
        reason, wanted = f"of the files that the index names, {named} {be} not there", named
    elif not checkpoint.shards:
        reason, wanted = "the release has no tensor files", "the tensor files of the release"
    else:
        return error
    return type(error)(
        f"{error.message}; {reason}",
        code=error.code,
        remedy=f"Fetch {wanted}, then run the comparison again.",
    )


def absent_files(checkpoint: Checkpoint) -> list[str]:
    """Tensor files that the index names and that are not there, in natural order."""
    there = set(checkpoint.shards)
    return [file for file in (checkpoint.index.files if checkpoint.index else ()) if file not in there]
