"""Tensor files that are announced and not there, as one fact: how many, which numbers, what they hold."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.checkpoints.naming import natural_key, number_of, renumbered

from ..finding import Finding, Subject, make_finding
from .index_sets import format_indices
from .readable import plural, readable
from .record_reconciliation import MAX_FILES

_MOST_SETS = 3


def missing_shards(checkpoint: Checkpoint, absent: Sequence[str]) -> Sequence[Finding]:
    """One finding, or none where every announced file is there.

    Args:
        checkpoint: whose index and remarks announce them.
        absent: all of them by name, in natural order.
    """
    told = [anomaly for anomaly in checkpoint.anomalies if anomaly.code == "missing_shard"]
    if not told:
        return []
    if len(absent) < 2 and len(told) == 1:
        (only,) = told
        subject = Subject(kind="file", name=absent[0] if absent else only.subject)
        return [make_finding("INV002", subject, only.message, evidence=[only.evidence])]
    numbers = numbered(absent)
    announced = set(checkpoint.shards) | set(absent) | set(checkpoint.index.files if checkpoint.index else ())
    sets = "; ".join(_said(form, held) for form, held in list(numbers.items())[:_MOST_SETS])
    more = f"; {len(numbers) - _MOST_SETS} more sets of names" if len(numbers) > _MOST_SETS else ""
    tensors = sum(1 for fault in checkpoint.faults if fault.fault == "missing_shard")
    held = f"; the index places {plural(tensors, 'tensor')} in them" if tensors else ""
    be = "is" if len(absent) == 1 else "are"
    files = f"{len(absent):,} of {plural(len(announced), 'announced tensor file')} {be} not there"
    message = f"{files}: {sets}{more}{held}"
    evidence = [*absent[:MAX_FILES], *_more(len(absent) - MAX_FILES)]
    return [
        make_finding("INV002", Subject(kind="file", name=next(iter(numbers))), message, evidence=evidence)
    ]


def numbered(files: Sequence[str]) -> dict[str, list[int]]:
    """Names with `*` in the place of their number -> the numbers; a name without one has none."""
    found: dict[str, list[int]] = {}
    for file in sorted(files, key=natural_key):
        folder, name = posixpath.split(file)
        bare, end = posixpath.splitext(name)
        number = number_of(bare)
        held = found.setdefault(posixpath.join(folder, renumbered(bare, None) + end), [])
        if number is not None:
            held.append(number)
    return found


def _said(form: str, numbers: Sequence[int]) -> str:
    return f"{format_indices(numbers)} of {readable(form)}" if numbers else readable(form)


def _more(number: int) -> Sequence[str]:
    return [f"and {number:,} more"] if number > 0 else []
