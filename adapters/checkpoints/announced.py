"""A release whose index is there and whose tensor files are not: an upload that has just begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from day0.adapters.base.checkpoint import TensorFault
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.base.wording import plural

from .index import choose_index, read_index
from .plain import PlainCheckpoint, no_checkpoint

MAX_NAMED = 100  # files that a person can use; the rest is counted


def announced_checkpoint(source: Source, sizes: Mapping[str, int]) -> PlainCheckpoint | None:
    """No tensors, but every file that the index names; None where there is no index that names any.

    Raises:
        InputError: the source refuses or cannot be reached.
    """
    path = choose_index(sizes)
    if path is None:
        return None
    index, anomalies = read_index(source, path, sizes[path])
    checkpoint = no_checkpoint()
    checkpoint.anomalies = (*checkpoint.anomalies, *anomalies)
    if index is None or not index.shard_of:
        return checkpoint
    checkpoint.index = index.summary()
    checkpoint.faults = [TensorFault(name, "missing_shard", file) for name, file in index.shard_of.items()]
    counts = Counter(index.shard_of.values())
    named = [
        Anomaly(
            code="missing_shard",
            subject=file,
            message=f"shard {file} is not there; the index places {plural(counts[file], 'tensor')} in it",
            evidence=index.path,
        )
        for file in checkpoint.index.files[:MAX_NAMED]
    ]
    checkpoint.anomalies = (*checkpoint.anomalies, *named)
    return checkpoint
