"""All headers of a set of shards, read in parallel with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly

from .safetensors_header import (
    LENGTH_BYTES,
    Header,
    HeaderError,
    describe_pointer,
    header_length,
    parse_header,
)

READERS = 16  # requests in flight; a hub allows some thousand per five minutes and answers in 50 ms
BATCH_BYTES = 32 * 2**20  # of raw headers held at once, apart from a single larger one


def read_headers(
    source: Source, shards: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, Header | Anomaly]]:
    """Yields each shard with its header or with what is wrong with it, in the order given.

    Reads the eight bytes that give each header's length, then exactly the headers.

    Raises:
        InputError: the hub refuses or cannot be reached.
    """
    with ThreadPoolExecutor(READERS, thread_name_prefix="headers") as pool:
        lengths = dict(
            zip(shards, pool.map(lambda shard: _length(source, shard, sizes[shard]), shards), strict=True)
        )
        for batch in _batches(shards, lengths):
            raws = pool.map(lambda shard: _raw(source, shard, lengths[shard]), batch)
            for shard, raw in zip(batch, raws, strict=True):
                yield shard, raw if isinstance(raw, Anomaly) else _parsed(shard, raw)


def _batches(shards: Sequence[str], lengths: Mapping[str, int | Anomaly]) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for shard in shards:
        length = lengths[shard]
        need = length if isinstance(length, int) else 0
        if batch and held + need > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(shard)
        held += need
    if batch:
        yield batch


def _length(source: Source, shard: str, size: int) -> int | Anomaly:
    try:
        return header_length(source.read(shard, 0, LENGTH_BYTES), size)
    except HeaderError as error:
        reason = error.reason
        if error.code == "lfs_pointer":
            reason += f": {describe_pointer(source.read(shard, 0, 1024))}"
        return broken(error.code, shard, reason)
    except SourceError as error:
        return broken("shard_unreadable", shard, error.message)


def _raw(source: Source, shard: str, length: int | Anomaly) -> bytes | Anomaly:
    if isinstance(length, Anomaly):
        return length
    try:
        raw = source.read(shard, LENGTH_BYTES, LENGTH_BYTES + length)
    except SourceError as error:
        return broken("shard_unreadable", shard, error.message)
    if len(raw) < length:
        return broken("header_truncated", shard, f"the header should have {length} bytes, {len(raw)} came")
    return raw


def _parsed(shard: str, raw: bytes) -> Header | Anomaly:
    try:
        return parse_header(raw)
    except HeaderError as error:
        return broken(error.code, shard, error.reason)


def broken(code: str, shard: str, reason: str) -> Anomaly:
    """A shard of which no tensor can be used, and why."""
    return Anomaly(
        code=code, subject=shard, message=f"shard {shard} cannot be used: {reason}", evidence=shard
    )
