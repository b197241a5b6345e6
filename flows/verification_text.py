"""What `--verify` showed, in a few lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from day0.reports.words import bytes_text, exact_text, number_text, plural
from day0.tasks.inventory.record_verification import Verification

_STATES = {
    "matches": "as the source vouches",
    "recorded": "hash recorded, none to compare",
    "as_before": "as last verified",
    "changed": "changed since last verified",
    "damaged": "damaged since last verified",
    "differs": "not what the source vouches for",
    "unreadable": "unreadable",
}


def verification_lines(verification: Verification | None) -> Iterator[tuple[str, str]]:
    """Label and text; nothing where nobody asked for it."""
    if verification is None:
        return
    states = Counter(shard.state for shard in verification.shards)
    told = ", ".join(f"{number} {_STATES.get(state, state)}" for state, number in sorted(states.items()))
    yield (
        "verified",
        f"{bytes_text(verification.bytes)} in {plural(len(verification.shards), 'file')}: {told}",
    )
    left = verification.partly_checked + verification.unchecked
    yield (
        "verified",
        f"{exact_text(verification.nan)} NaN, {exact_text(verification.inf)} infinite elements, "
        f"{plural(verification.zero_tensors, 'tensor')} of zeros, of {exact_text(verification.tensors)} "
        f"looked at; {exact_text(left)} not looked at in full",
    )
    if verification.earlier:
        yield "verified", "by an earlier --verify; the files are the ones that it read"
    largest = next((row for row in verification.patterns if row.checked == "full" and row.worst), None)
    if largest is not None:
        yield (
            "verified",
            f"largest magnitude {number_text(largest.max_abs)} in {largest.worst} ({largest.dtype})",
        )
