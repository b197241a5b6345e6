"""Counts of a release of which some files are not here: what they are counts of."""

from __future__ import annotations

from day0.tasks.inventory.record import InventoryFacts

from .words import bytes_text, exact_text, listed, plural


def partial_text(facts: InventoryFacts) -> str:
    """`572 of 91,991 tensors, 12.8 GB of 689 GB, in 3 of 163 files`; empty where the counts are of all.

    What is announced is told as far as the index states it.
    """
    if not facts.readiness.partial:
        return ""
    totals, index = facts.totals, facts.reconciliation.index
    read = facts.reconciliation.headers.files
    files = max(index.shards, totals.shards + awaited_files(facts))
    tensors = f" of {exact_text(index.tensors)}" if index.tensors > totals.tensors else ""
    size = f" of {bytes_text(index.total_size)}" if index.total_size > totals.data_bytes else ""
    held = f"{exact_text(totals.tensors)}{tensors} tensors, {bytes_text(totals.data_bytes)}{size}"
    return f"{held}, in {exact_text(read)} of {exact_text(files)} files"


def awaited_files(facts: InventoryFacts) -> int:
    """Files that are announced and not there."""
    return len(facts.readiness.awaited) + facts.readiness.more_awaited


def awaited_text(facts: InventoryFacts, limit: int) -> str:
    """How many files are awaited and the first of them; empty for none."""
    number, named = awaited_files(facts), list(facts.readiness.awaited[:limit])
    if not number:
        return ""
    left = number - len(named)
    names = f"{', '.join(named)} and {exact_text(left)} more" if left else listed(named, limit)
    return f"{plural(number, 'file')} awaited: {names}"
