"""A release on the hub, pinned to one commit: small files through the hub's cache, ranges over one client."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from day0.adapters.base.errors import InputError, SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly

from . import hub_settings
from .http_ranges import CHUNK, RemoteFile
from .hub_api import COMMIT, Entry, RepositoryState, file_request, find_revision, list_files
from .hub_cache import HubCache, content_hash, matches
from .hub_errors import explained
from .local import LocalSource
from .paths import is_inside
from .staging import Stager
from .staging_place import StagingPlace

MAX_KEPT = 300_000_000  # bytes; larger files are read whole without being kept: weights come by `local_path`
_MAX_LISTED = 8  # commits whose listing stays in memory; a commit never changes, and a run opens it often
_MODEL_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[^\s\x00-\x1f\x7f~^:?*\[\\]{1,255}")  # what git allows in the name of a ref


class _Found(NamedTuple):
    state: RepositoryState
    branch: str | None


_LISTED: dict[tuple[str, str, str], Sequence[Entry]] = {}
_FOUND: dict[tuple[str, str, str], _Found] = {}  # a run pins a branch once and names the commit from then on
_LOCK = threading.Lock()


class HubSource:
    """A model repository at one commit.

    Whole small files stay in the hub's cache, checked by length and hash; ranges are fetched as asked for,
    unless the file is cached. Any number of threads may read.

    Args:
        model: hub id, `org/name`.
        commit: full hash.
        entries: all files of the commit.
        cache: of this model.
        branch: the branch or tag by which this process came to the commit; None where it was named itself.
        gated: whether the hub hands out files only on request; None where that is not known.
        online: whether anything may be fetched.
    """

    def __init__(
        self,
        model: str,
        commit: str,
        entries: Sequence[Entry],
        *,
        cache: HubCache,
        branch: str | None = None,
        gated: bool | None = None,
        online: bool = True,
    ) -> None:
        self.name = model
        self.revision = commit
        self.branch = branch
        self.gated = gated
        self._cache = cache
        self._online = online
        self._entries = {entry.path: entry for entry in entries if is_inside(entry.path)}
        self._files = tuple(_source_file(entry) for entry in self._entries.values())
        self._remotes: dict[str, RemoteFile] = {}
        self.anomalies: Sequence[Anomaly] = tuple(_remarks(entries, cache))

    def files(self) -> Sequence[SourceFile]:
        """All files of the commit, sorted by path."""
        return self._files

    def absent(self) -> Sequence[str]:
        """Listed files that cannot be had: none, or offline those that are not in the cache."""
        if self._online:
            return ()
        return [path for path, entry in self._entries.items() if entry.size and not self._cached(entry)]

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` (exclusive) of one file; a whole file stays in the hub cache.

        Raises:
            SourceError: E109 offline and not cached, E201 missing, E202 shorter than `start`, E205 the server
                ignores ranges, E206 it has another file, E207 the content has another hash than listed.
            InputError: the hub cannot be reached or refuses, see `hub_errors.explain`.
        """
        entry = self._entry(path)
        if start > entry.size:
            raise SourceError(
                f"file {path} of {self.name} ends at byte {entry.size}, before byte {start}", code="E202"
            )
        last = entry.size if stop is None else min(stop, entry.size)
        if last <= start:
            return b""
        cached = self._cached(entry)
        if cached is not None:
            with cached.open("rb") as opened:
                opened.seek(start)
                return opened.read(last - start)
        if start == 0 and stop is None and entry.size <= MAX_KEPT:
            return self._whole(entry)
        with explained(f"file {path} of model {self.name}", file=True):
            return self._remote(entry).read(start, last)

    def stream(
        self, path: str, start: int = 0, stop: int | None = None, *, chunk: int = CHUNK
    ) -> Iterator[bytes]:
        """Bytes `start` to `stop` over the network, in order, in chunks of at most `chunk` bytes.

        A cut connection is taken up again at the first byte that has not been handed on.

        Raises:
            SourceError: as for `read`.
            InputError: as for `read`.
        """
        entry = self._entry(path)
        last = entry.size if stop is None else min(stop, entry.size)
        with explained(f"file {path} of model {self.name}", file=True):
            yield from self._remote(entry).stream(start, last, chunk)

    def local_path(self, path: str) -> Path:
        """The file in the hub cache, staged first where it is not there yet: resumable, by its hash.

        Raises:
            SourceError: E201, the commit has no such file; what staging meets, see `Stager.ensure`.
            InputError: the hub cannot be reached or refuses, see `hub_errors.explain`.
        """
        return self.stager.ensure(self._entry(path).path)

    @cached_property
    def stager(self) -> Stager:
        """Brings ranges and whole files into the hub cache."""
        place = StagingPlace(self._cache.snapshot(self.revision).parent.parent, self.revision)
        return Stager(self.name, self._files, place, self.stream)

    def moved(self) -> Anomaly | None:
        """What became of the branch since: None where it still stands for this commit, or cannot be asked."""
        asked = self.branch
        if asked is None or not self._online:
            return None
        try:
            commit = find_revision(self.name, asked, patient=False).commit
        except InputError:  # a remark is not worth the inventory
            return None
        if commit == self.revision:
            return None
        return Anomaly(
            code="revision_moved",
            subject=asked,
            message=f"{asked} of {self.name} stood for {self.revision} when the reading began and stands for "
            f"{commit} now; everything here is of the former",
            evidence=f"{self.name}@{commit}",
        )

    def _entry(self, path: str) -> Entry:
        if path not in self._entries:
            raise SourceError(f"there is no file {path} in {self.name} at {self.revision}", code="E201")
        return self._entries[path]

    def _cached(self, entry: Entry) -> Path | None:
        return self._cache.find(self.revision, entry.path, entry.size)

    def _remote(self, entry: Entry) -> RemoteFile:
        if not self._online:
            why, remedy = hub_settings.why_offline()
            raise SourceError(
                f"file {entry.path} of {self.name} is not whole in the hub cache and {why}",
                code="E109",
                remedy=f"{remedy}, or download it first.",
            )
        if entry.path not in self._remotes:
            request = file_request(self.name, self.revision, entry.path)
            self._remotes[entry.path] = RemoteFile(request, entry.size, f"file {entry.path} of {self.name}")
        return self._remotes[entry.path]

    def _whole(self, entry: Entry) -> bytes:
        for _ in range(2):  # what a proxy spoiled once may come whole the second time
            with explained(f"file {entry.path} of model {self.name}", file=True):
                data = self._remote(entry).read(0, entry.size)
            if matches(entry, data):
                self._cache.keep(self.revision, entry.path, content_hash(entry), data)
                return data
        raise SourceError(
            f"file {entry.path} of {self.name} does not have the hash that the listing gives",
            code="E207",
            remedy="Try again later, or without the mirror or proxy in between.",
        )


def _source_file(entry: Entry) -> SourceFile:
    return SourceFile(
        path=entry.path,
        size=entry.size,
        identity=entry.sha256 or entry.blob or entry.xet,
        sha256=entry.sha256 or None,
    )


def _remarks(entries: Sequence[Entry], cache: HubCache) -> Iterator[Anomaly]:
    for entry in entries:
        if not is_inside(entry.path):
            shown = ascii(entry.path[:200])
            message = f"the repository lists {shown}, which is no path inside it; it is left out"
            yield Anomaly(code="path_refused", subject=shown, message=message)
    if cache.trouble:
        yield Anomaly(
            code="cache_unwritable",
            subject=str(cache.root),
            message=f"the hub cache takes no files, so that none are kept for the next run: {cache.trouble}",
        )


def open_source(model: str, revision: str | None = None) -> HubSource | LocalSource | None:
    """The hub's model of that name, pinned; offline, what the cache holds of it; None for a URL.

    Environment: HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN, as huggingface_hub reads them.

    Raises:
        InputError: E104 not a hub id, E105 too many files, E106 unreachable, E107 not found, E108, E114 or
            E115 no access, E109 offline and not cached, E131 no such revision, E133 the hub answers with an
            error.
    """
    if "://" in model:
        return None
    _check_names(model, revision)
    cache = HubCache(hub_settings.cache(), model)
    if hub_settings.offline():
        return _open_cached(model, revision, cache)
    pinned = revision if revision is not None and COMMIT.fullmatch(revision) else None
    known = _FOUND.get((hub_settings.endpoint(), model, pinned or ""))
    found = known or _Found(find_revision(model, revision), None if pinned else revision or hub_settings.MAIN)
    commit = found.state.commit
    entries = _listed(model, commit)
    cache.keep_listing(commit, entries)
    if known is None:
        if found.branch is not None:
            cache.keep_ref(found.branch, commit)
        _FOUND[hub_settings.endpoint(), model, commit] = found
    return HubSource(model, commit, entries, cache=cache, branch=found.branch, gated=found.state.gated)


def _check_names(model: str, revision: str | None) -> None:
    if not _MODEL_ID.fullmatch(model) or ".." in model or "--" in model:
        raise InputError(
            f"{model!r} is neither an existing folder nor a hub id",
            code="E104",
            remedy="Give org/name, or the path of an existing folder.",
        )
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise InputError(
            f"{revision[:80]!a} cannot be a revision of model {model}",
            code="E131",
            remedy="Give a branch, a tag or a full commit hash that the repository has.",
        )


def _listed(model: str, commit: str) -> Sequence[Entry]:
    key = (hub_settings.endpoint(), model, commit)
    with _LOCK:
        known = _LISTED.get(key)
    if known is None:
        known = list_files(model, commit)
        with _LOCK:
            _LISTED[key] = known
            while len(_LISTED) > _MAX_LISTED:
                _LISTED.pop(next(iter(_LISTED)))
    return known


def _open_cached(model: str, revision: str | None, cache: HubCache) -> HubSource | LocalSource:
    asked = revision or hub_settings.MAIN
    commit = asked if COMMIT.fullmatch(asked) else cache.commit_of(asked)
    entries = cache.listing(commit) if commit is not None else None
    if commit is not None and entries is not None and cache.snapshot(commit).is_dir():
        return HubSource(model, commit, entries, cache=cache, online=False)
    if commit is None or not cache.snapshot(commit).is_dir():
        why, remedy = hub_settings.why_offline()
        raise InputError(
            f"model {model} at {asked!r} is not in the hub cache {cache.root} and {why}",
            code="E109",
            remedy=f"{remedy}, or download it first.",
        )
    source = LocalSource(cache.snapshot(commit), name=model, revision=commit)
    remark = Anomaly(
        code="snapshot_unlisted",
        subject=commit,
        message="the cache holds no listing of this commit, so that files that were never downloaded cannot "
        "be told from files that the release lacks",
    )
    source.anomalies = (*source.anomalies, remark)
    return source
