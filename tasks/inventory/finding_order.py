"""Which finding a person should read first: what explains others comes before what it explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..finding import Finding

# The state of the whole, then files that are absent or unread, then files that are damaged, then the index.
_FIRST = (
    "INV037", "INV099", "INV045", "INV002", "INV097", "INV096", "INV013", "INV003", "INV014", "INV092",
    "INV009", "INV001", "INV030", "INV080", "INV086", "INV010", "INV005", "INV006", "INV098",
)  # fmt: skip
_RANK = {code: place for place, code in enumerate(_FIRST)}


def explaining_first(findings: Iterable[Finding]) -> Sequence[Finding]:
    """The same findings; those of equal rank stay as they were."""
    return sorted(findings, key=lambda finding: _RANK.get(finding.code, len(_FIRST)))
