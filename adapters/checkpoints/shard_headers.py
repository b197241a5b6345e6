"""All headers of a set of shards, read in parallel with bounded memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from day0.adapters.base.errors import SourceError, UnansweredError
from day0.adapters.base.progress import log_progress
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.sources.local import LocalSource

from .header_columns import HeaderError, Known
from .safetensors_header import LENGTH_BYTES, Header, describe_pointer, header_length, parse_header

READERS = 16  # requests in flight; a hub allows some thousand per five minutes and answers in 50 ms
HELD_BYTES = 32 * 2**20  # of raw headers held at once, apart from a single larger one


def read_headers(
    source: Source, shards: Sequence[str], sizes: Mapping[str, int]
) -> Mapping[str, Header | Anomaly]:
    """Each shard, in the order given, with its header or with what is wrong with it.

    Reads the eight bytes that give each header's length, then exactly the headers, many at once; they are
    parsed as they come, and no more than `HELD_BYTES` of them wait for that.

    Raises:
        InputError: the hub refuses or cannot be reached.
    """
    found: dict[str, Header | Anomaly] = {}
    known = Known()
    read_bytes = 0
    for shard, raw in _raw_headers(source, shards, sizes):
        if isinstance(raw, Anomaly):
            found[shard] = raw
        else:
            read_bytes += LENGTH_BYTES + len(raw)
            found[shard] = _parsed(shard, raw, known)
        log_progress("headers", len(found), len(shards), f"{read_bytes:,} bytes")
    return {shard: found[shard] for shard in shards}


def _raw_headers(
    source: Source, shards: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, bytes | Anomaly]]:
    """Each shard's header as it comes."""
    if isinstance(source, LocalSource):  # it answers at once: threads would only take turns with the parsing
        for shard in shards:
            yield shard, _read(source, shard, sizes[shard], _Budget(HELD_BYTES))
        return
    budget = _Budget(HELD_BYTES)
    with ThreadPoolExecutor(READERS, thread_name_prefix="headers") as pool:
        waiting = {pool.submit(_read, source, shard, sizes[shard], budget): shard for shard in shards}
        try:
            for future in as_completed(waiting):
                shard, raw = waiting.pop(future), future.result()
                yield shard, raw
                if isinstance(raw, bytes):
                    budget.give(len(raw))
                del future, raw
        finally:  # whoever waits for room after an error goes on and finds that nobody wants the rest
            budget.lift()
            pool.shutdown(cancel_futures=True)


class _Budget:
    """Bytes that may be held at once; a single larger amount is let through alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    def take(self, amount: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + amount <= self._limit)
            self._held += amount

    def give(self, amount: int) -> None:
        with self._changed:
            self._held -= amount
            self._changed.notify_all()

    def lift(self) -> None:
        with self._changed:
            self._limit = sys.maxsize
            self._changed.notify_all()


def _read(source: Source, shard: str, size: int, budget: _Budget) -> bytes | Anomaly:
    length = _length(source, shard, size)
    if isinstance(length, Anomaly):
        return length
    budget.take(length)
    raw = _raw(source, shard, length)
    if isinstance(raw, Anomaly):
        budget.give(length)
    return raw


def _length(source: Source, shard: str, size: int) -> int | Anomaly:
    try:
        return header_length(source.read(shard, 0, LENGTH_BYTES), size)
    except HeaderError as error:
        reason = error.reason
        if error.code == "lfs_pointer":
            reason += f": {describe_pointer(source.read(shard, 0, 1024))}"
        return broken(error.code, shard, reason)
    except (SourceError, UnansweredError) as error:
        return broken("shard_unreadable", shard, error.message)


def _raw(source: Source, shard: str, length: int) -> bytes | Anomaly:
    try:
        raw = source.read(shard, LENGTH_BYTES, LENGTH_BYTES + length)
    except (SourceError, UnansweredError) as error:
        return broken("shard_unreadable", shard, error.message)
    if len(raw) < length:
        return broken("header_truncated", shard, f"the header should have {length} bytes, {len(raw)} came")
    return raw


def _parsed(shard: str, raw: bytes, known: Known) -> Header | Anomaly:
    try:
        return parse_header(raw, known)
    except HeaderError as error:
        return broken(error.code, shard, error.reason)


def broken(code: str, shard: str, reason: str) -> Anomaly:
    """A shard of which no tensor can be used, and why."""
    return Anomaly(
        code=code, subject=shard, message=f"shard {shard} cannot be used: {reason}", evidence=shard
    )
