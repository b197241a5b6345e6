"""What became of a listing while its files were read."""

from __future__ import annotations

from collections.abc import Iterable

from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly


def changed_files(
    name: str, kind: str, before: Iterable[SourceFile], after: Iterable[SourceFile]
) -> Anomaly | None:
    """That files came, went or changed between two listings; None where all are as they were.

    Args:
        name: of the source.
        kind: what it calls its files, e.g. `files` or `objects`.
        before: as listed first.
        after: as listed now.
    """
    then, now = ({file.path: file.identity for file in listing} for listing in (before, after))
    changed = sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))
    if not changed:
        return None
    return Anomaly(
        code="revision_moved",
        subject=changed[0],
        message=f"{len(changed)} {kind} of {name} came, went or changed while they were read, the "
        f"first is {changed[0]}",
        evidence=", ".join(changed[:10]),
    )
