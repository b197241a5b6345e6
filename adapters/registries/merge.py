"""Two registries of one target made into one: what two people measured."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import InputError
from .registry import Registry
from .row import CHECKS, RegistryRow


@dataclass(frozen=True)
class Disagreement:
    """Two measurements of one row under one fingerprint that came to different statuses.

    Attributes:
        kept: the newer one; of one day, the worse; but what was tried in full before what was not.
        dropped: the other.
    """

    kept: RegistryRow
    dropped: RegistryRow


def merge(first: Registry, second: Registry) -> tuple[Registry, tuple[Disagreement, ...]]:
    """Both registries' rows, and what they disagree on; the order of the two does not matter.

    Raises:
        InputError: E171, they are of different targets.
    """
    if first.name != second.name:
        raise InputError(
            f"registries of {first.name} and {second.name} are of two targets and cannot be merged",
            code="E171",
            remedy="Merge registries of one STACK@DEVICE.",
        )
    disagreements = []
    kept = []
    for mine in second.all_rows():
        table = first.declared if mine.method == "declared" else first.rows
        theirs = table.get((mine.key, mine.fingerprint))
        better, other = sorted((mine, theirs or mine), key=_standing, reverse=True)
        kept.append(better)
        if theirs is not None and mine.status != theirs.status:
            disagreements.append(Disagreement(better, other))
    return first.merged(kept, second.fingerprints), tuple(disagreements)


def _standing(row: RegistryRow) -> tuple[bool, bool, str, bool, int, str]:
    """What was decided before what was not; a fault, or all checks passed, before some of them passed.

    Then newer before older; of one day, a fault before none: a fault seen once is not undone by luck.
    """
    fault = row.status not in ("native", "unknown")
    settled = fault or set(CHECKS) <= set(row.checks)
    return row.status != "unknown", settled, row.date, fault, len(row.checks), row.model_dump_json()
