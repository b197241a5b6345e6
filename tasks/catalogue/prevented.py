"""Findings that every stage shares: why it could not do its work."""

from __future__ import annotations

from .entry import Entry

PREFIXES = {"coverage": "COV", "minimal": "MIN", "numerics": "NUM", "plan": "PLN", "scale": "SCL"}


def _entries(stage: str, prefix: str) -> tuple[Entry, ...]:
    return (
        Entry(
            code=f"{prefix}900",
            title=f"{stage}: the release does not allow it",
            severity="error",
            meaning=f"The {stage} stage could not start, because a file, the config or the structure of the "
            "release is not usable for it.",
            remedy="Correct what the message names and run again; everything else of the record holds.",
            undecided="blocked",
        ),
        Entry(
            code=f"{prefix}901",
            title=f"{stage}: the worker crashed",
            severity="error",
            meaning=f"The target's process died during the {stage} stage, outside any single check.",
            remedy="Look at the worker's log; give the vendor its last lines.",
        ),
        Entry(
            code=f"{prefix}902",
            title=f"{stage}: the worker hung",
            severity="error",
            meaning=f"A call to the target during the {stage} stage did not return within its time limit.",
            remedy="Raise --timeout if the target is only slow; else give the vendor the worker's log.",
        ),
        Entry(
            code=f"{prefix}903",
            title=f"{stage}: out of memory",
            severity="error",
            meaning=f"The target's process passed its memory limit during the {stage} stage.",
            remedy="Raise --memory if the machine has more, or use a larger device.",
        ),
        Entry(
            code=f"{prefix}904",
            title=f"{stage}: the target cannot start",
            severity="error",
            meaning=f"The target's process could not be started or asked, so the {stage} stage did not run.",
            remedy="Install what the message names, or give the right Python with --worker-command.",
            undecided="blocked",
        ),
        Entry(
            code=f"{prefix}905",
            title=f"{stage}: the stack raised an error",
            severity="error",
            meaning=f"The target answered with an error of its own in the {stage} stage, outside any check.",
            remedy="Look at the worker's log; give the vendor the message.",
        ),
        Entry(
            code=f"{prefix}906",
            title=f"{stage}: the target does not claim to do this",
            severity="warning",
            meaning=f"The target lacks a capability that the {stage} stage needs.",
            remedy="Nothing to do on the model's side; the answer stays open on this target.",
            undecided="unverified",
        ),
        Entry(
            code=f"{prefix}908",
            title=f"{stage}: Day0 itself failed",
            severity="error",
            meaning=f"The {stage} stage ended with an error that Day0 did not foresee.",
            remedy="Report it with the log that the evidence names.",
            undecided="blocked",
        ),
    )


ENTRIES: tuple[Entry, ...] = tuple(
    entry for stage, prefix in PREFIXES.items() for entry in _entries(stage, prefix)
)
