"""Verifies the weights of a release: every byte is read once, shard by shard, and a killed run goes on.

What was found in a shard is kept in the run store until the whole verification is done; then the hashes are
kept instead, so that a later verification of a folder, for which no source vouches, has something to compare.
A verification that is asked for anew reads everything anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from day0.adapters.base.checkpoint import TensorBlock, tensor_blocks
from day0.adapters.base.errors import SourceError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.source import Source, SourceFile
from day0.adapters.base.values import Number, Value, digest, json_number
from day0.adapters.sources.content_hash import vouched_hash
from day0.adapters.sources.staging import Wanted, stager_of

from .verify_file import FileContent, Stored, read_content

VERSION = 1  # of what is kept of a shard
MOST_AT_ONCE = 4  # shards; two cores each, 16 MiB of buffers each
WRONG = "E211"  # staging met the wrong hash twice


class TensorContent(NamedTuple):
    """The numbers of one tensor; see `ContentPattern`. A release may have half a million of them."""

    name: str
    dtype: str
    checked: str
    nan: int = 0
    inf: int = 0
    zero: bool = False
    max_abs: Number = 0.0


class ShardContent(Value):
    """What one file holds; see `VerifiedShard`.

    Attributes:
        path: in the release.
        size: as listed.
        identity: as listed.
        sha256: of the content.
        expected: the hash that the source gives, with `git:` before git's; empty where it gives none.
        vouched: the hash of that kind, of the content.
        problem: why it could not be read; then it is not kept.
        wrong: whether it came with the wrong hash and was not used.
        tensors: in the order of their names.
    """

    path: str
    size: int
    identity: str
    sha256: str = ""
    expected: str = ""
    vouched: str = ""
    problem: str = ""
    wrong: bool = False
    tensors: Sequence[TensorContent] = ()


class KnownHash(Value):
    """The hash of a file, and the file's identity, as they were when it was last verified."""

    sha256: str
    identity: str


class KnownHashes(Value):
    """What is remembered of a release: path -> hash."""

    files: Mapping[str, KnownHash] = {}


@dataclass(frozen=True)
class Contents:
    """Everything that was read.

    Attributes:
        shards: of the canonical set, in its order.
        known: path -> what is remembered of it from before.
        bytes: read now.
        seconds: it took.
    """

    shards: Sequence[ShardContent]
    known: Mapping[str, KnownHash]
    bytes: int
    seconds: float

    @property
    def digest(self) -> str:
        """Over all that was found: what a record with it depends on."""
        found = [sha256(shard.model_dump_json().encode()).hexdigest() for shard in self.shards]
        known = {path: one.model_dump(mode="json") for path, one in self.known.items()}
        return digest([VERSION, found, known])


def verify_weights(release: Release, store: RunStore, progress: Progress = silent) -> Contents:
    """Reads every byte of the canonical tensor files; a remote release is staged on the way.

    Args:
        release: with its checkpoint.
        store: keeps what was found of each shard.
        progress: told megabytes.

    Raises:
        InputError: the source cannot be reached any more; what was verified is kept.
    """
    began = time.monotonic()
    source = release.source
    if source is None:
        return Contents((), {}, 0, 0.0)
    listed = {file.path: file for file in source.files()}
    files = [listed[path] for path in release.checkpoint.shards if path in listed]
    held = _by_file(release)
    folder = f"verify/{digest(source.name)}"
    known = _known(store, folder)
    meter = _Meter(f"verifying {source.name} (MB)", sum(file.size for file in files), progress)
    job = _Job(source, store, f"{folder}/pending", held, meter)
    shards = job.run(files)
    _remember(store, folder, shards, known)
    return Contents(shards, known.files, meter.read, time.monotonic() - began)


def _by_file(release: Release) -> Mapping[str, TensorBlock]:
    return {block.file: block for block in tensor_blocks(release.checkpoint.tensors)}


@dataclass
class _Meter:
    """Bytes verified, shown now and then.

    Attributes:
        done: bytes verified, now or by an earlier run.
        read: of these, now.
    """

    step: str
    total: int
    progress: Progress
    done: int = 0
    read: int = 0
    began: float = field(default_factory=time.monotonic)
    shown: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, count: int, path: str, *, now: bool = True) -> None:
        with self.lock:
            self.done += count
            self.read += count if now else 0
            moment = time.monotonic()
            if moment - self.shown < 0.25 and self.done < self.total:
                return
            self.shown = moment
            speed = self.read / max(moment - self.began, 1e-9) / 1e9
            megabytes = self.done // 10**6 if self.done < self.total else -(-self.total // 10**6)
            self.progress(self.step, megabytes, -(-self.total // 10**6), f"{speed:.2f} GB/s, {path}")


@dataclass(frozen=True)
class _Job:
    """Verifies files, several at once where there are cores for it."""

    source: Source
    store: RunStore
    folder: str
    held: Mapping[str, TensorBlock]
    meter: _Meter

    def run(self, files: Sequence[SourceFile]) -> Sequence[ShardContent]:
        at_once = max(1, min(MOST_AT_ONCE, (os.cpu_count() or 2) // 2, len(files)))
        with self._fetching(files) as fetched, ThreadPoolExecutor(at_once, "verify") as pool:
            running = [pool.submit(self._shard, file, fetched.get(file.path)) for file in files]
            try:
                return [future.result() for future in running]
            finally:
                for future in running:
                    future.cancel()

    @contextmanager
    def _fetching(self, files: Sequence[SourceFile]) -> Iterator[Mapping[str, Future[Path]]]:
        """Each file on this machine as it comes: the next are staged while one is read."""
        wanted = [file.path for file in files if self._kept(file) is None]
        stager = stager_of(self.source)
        if stager is not None:
            stager.check_room([Wanted(path) for path in wanted])
        with ThreadPoolExecutor(1, "fetch") as pool:
            coming = {path: pool.submit(self.source.local_path, path) for path in wanted}
            try:
                yield coming
            finally:
                for future in coming.values():
                    future.cancel()

    def _shard(self, file: SourceFile, coming: Future[Path] | None) -> ShardContent:
        kept = self._kept(file) if coming is None else None
        if kept is not None:
            self.meter.add(file.size, file.path, now=False)
            return kept
        try:
            path = coming.result() if coming is not None else self.source.local_path(file.path)
            tensors = self._tensors(file.path)
            content = read_content(file, path, tensors, lambda count: self.meter.add(count, file.path))
        except SourceError as error:
            return ShardContent(
                path=file.path,
                size=file.size,
                identity=file.identity,
                expected=_expected(file),
                problem=error.message,
                wrong=error.code == WRONG,
            )
        shard = _shard_content(file, content, tensors)
        self.store.write(self._name(file), shard.model_dump_json().encode())
        return shard

    def _kept(self, file: SourceFile) -> ShardContent | None:
        name = self._name(file)
        if not self.store.exists(name):
            return None
        try:
            return ShardContent.model_validate_json(self.store.read(name))
        except ValidationError:
            return None

    def _tensors(self, path: str) -> Sequence[Stored]:
        block = self.held.get(path)
        if block is None:
            return ()
        columns = zip(block.names, block.kinds, block.starts, strict=True)
        return [Stored(name, kind.dtype, start, kind.bytes) for name, kind, start in columns]

    def _name(self, file: SourceFile) -> str:
        """Under the file's identity and the layout of its tensors."""
        layout = [list(tensor) for tensor in self._tensors(file.path)]
        key = digest([VERSION, self.source.name, file.path, file.size, file.identity, layout])
        return f"{self.folder}/{key}.json"


def _shard_content(file: SourceFile, content: FileContent, tensors: Sequence[Stored]) -> ShardContent:
    found = []
    for info in sorted(tensors, key=lambda info: info.name):
        tally = content.tallies[info.name]
        found.append(
            TensorContent(
                name=info.name,
                dtype=info.dtype,
                checked=tally.checked if tally.seen == info.bytes else "none",
                nan=tally.nan,
                inf=tally.inf,
                zero=tally.is_zero,
                max_abs=json_number(tally.max_abs),
            )
        )
    return ShardContent(
        path=file.path,
        size=file.size,
        identity=file.identity,
        sha256=content.sha256,
        expected=_expected(file),
        vouched=content.vouched,
        tensors=tuple(found),
    )


def _expected(file: SourceFile) -> str:
    vouched = vouched_hash(file)
    if vouched is None:
        return ""
    return vouched.value if vouched.kind == "sha256" else f"{vouched.kind}:{vouched.value}"


def _known(store: RunStore, folder: str) -> KnownHashes:
    name = f"{folder}/hashes.json"
    if not store.exists(name):
        return KnownHashes()
    try:
        return KnownHashes.model_validate_json(store.read(name))
    except ValidationError:
        return KnownHashes()


def _remember(store: RunStore, folder: str, shards: Sequence[ShardContent], known: KnownHashes) -> None:
    """Keeps the hashes of what was read now, and drops what only a killed run would have needed.

    Where a content changed under an unchanged identity the old hash stays: that is damage, and remains so.
    """
    files = dict(known.files)
    for shard in shards:
        before = files.get(shard.path)
        if shard.sha256 and (before is None or before.identity != shard.identity):
            files[shard.path] = KnownHash(sha256=shard.sha256, identity=shard.identity)
    hashes = KnownHashes(files=dict(sorted(files.items())))
    store.write(f"{folder}/hashes.json", hashes.model_dump_json().encode())
    store.remove(f"{folder}/pending")
