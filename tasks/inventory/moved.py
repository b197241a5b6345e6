"""Whether what was read is still what the release's name stands for."""

from __future__ import annotations

from day0.adapters.base.source import MovingSource

from .checkpoint_findings import anomaly_findings
from .seen import Part, Seen


def look_again(seen: Seen) -> Part:
    """A warning where the branch moved, or a file of the folder changed, since the release was opened.

    Costs one request at most; nothing is said where it cannot be found out.
    """
    source = seen.release.source
    moved = source.moved() if isinstance(source, MovingSource) else None
    return Part(findings=anomaly_findings([moved]) if moved is not None else ())
