"""A release on the hub, pinned to one commit, through huggingface_hub and its cache."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from day0.adapters.base.errors import InputError, SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly

from .hub_errors import ShortReadError, retrying
from .local import LocalSource
from .paths import is_inside

TIMEOUT = 30.0  # seconds without a byte
MAX_SKIP = 2**20  # bytes read in vain from a server that ignores ranges before we give up on it
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MODEL_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class HubSource:
    """A model repository at one commit.

    Whole files come through the hub's own cache; ranges are fetched as asked for, unless the file is cached.

    Args:
        model: hub id, `org/name`.
        commit: full hash.
        endpoint: address of the hub.
        cache: folder of the hub cache.
    """

    anomalies: Sequence[Anomaly] = ()

    def __init__(self, model: str, commit: str, *, endpoint: str, cache: Path) -> None:
        self.name = model
        self.revision = commit
        self._endpoint = endpoint
        self._cache = cache
        self._what = f"model {model}"
        self._snapshot = _storage(model, cache) / "snapshots" / commit
        self._files = {file.path: file for file in self._listing()}

    def files(self) -> Sequence[SourceFile]:
        """All files of the commit, sorted by path."""
        return tuple(self._files.values())

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` (exclusive) of one file; a whole file stays in the hub cache.

        Raises:
            SourceError: E201 missing, E202 shorter than `start`, E205 the server ignores ranges.
            InputError: the hub cannot be reached or refuses, see `hub_errors.explain`.
        """
        file = self._file(path)
        if start > file.size:
            raise SourceError(
                f"file {path} of {self.name} ends at byte {file.size}, before byte {start}", code="E202"
            )
        last = file.size if stop is None else min(stop, file.size)
        if last <= start:
            return b""
        cached = self._snapshot / path
        if cached.is_file() or (start == 0 and stop is None):
            with self.local_path(path).open("rb") as opened:
                opened.seek(start)
                return opened.read(last - start)
        return retrying(partial(self._range, path, start, last), f"file {path} of {self._what}")

    def local_path(self, path: str) -> Path:
        """The file in the hub cache, fetched first where it is not there yet.

        Raises:
            SourceError: E201, the commit has no such file.
            InputError: the hub cannot be reached or refuses, see `hub_errors.explain`.
        """
        self._file(path)
        fetch = partial(
            hf_hub_download, self.name, path,
            revision=self.revision, endpoint=self._endpoint, cache_dir=self._cache,
        )  # fmt: skip
        return Path(retrying(fetch, f"file {path} of {self._what}"))

    def _file(self, path: str) -> SourceFile:
        if path not in self._files:
            raise SourceError(f"there is no file {path} in {self.name} at {self.revision}", code="E201")
        return self._files[path]

    def _listing(self) -> list[SourceFile]:
        api = HfApi(endpoint=self._endpoint)

        def fetch() -> list[SourceFile]:
            entries = api.list_repo_tree(self.name, recursive=True, revision=self.revision)
            return [
                _source_file(entry)
                for entry in entries
                if isinstance(entry, RepoFile) and is_inside(entry.path)
            ]

        return sorted(retrying(fetch, f"{self._what} at {self.revision}"), key=lambda file: file.path)

    def _range(self, path: str, start: int, stop: int) -> bytes:
        url = hf_hub_url(self.name, path, revision=self.revision, endpoint=self._endpoint)
        headers = build_hf_headers()
        headers["Accept-Encoding"] = "identity"  # a compressed range would not have the length asked for
        headers["Range"] = f"bytes={start}-{stop - 1}"
        stream = get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT)
        with stream as response:
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            skip = self._skip(response, path, start, stop)
            return _take(response, skip, stop - start)

    def _skip(self, response: httpx2.Response, path: str, start: int, stop: int) -> int:
        """Bytes of the answer before the ones asked for: none where the server honours the range."""
        given = response.headers.get("Content-Range", "")
        if response.status_code == 206 and given.startswith(f"bytes {start}-{stop - 1}/"):
            return 0
        if response.status_code == 200 and start <= MAX_SKIP:
            return start
        raise SourceError(
            f"the hub ignores ranges: bytes {start} to {stop - 1} of {path} were answered with status "
            f"{response.status_code} and range {given!r}",
            code="E205",
            remedy="Use another mirror, or download the model and give the folder.",
        )


def _take(response: httpx2.Response, skip: int, length: int) -> bytes:
    """The bytes after `skip`, leaving the connection as soon as they are here."""
    taken = bytearray()
    for chunk in response.iter_raw():
        taken += chunk[skip:] if skip else chunk
        skip = max(0, skip - len(chunk))
        if len(taken) >= length:
            return bytes(taken[:length])
    raise ShortReadError(f"the connection ended after {len(taken)} of {length} bytes")


def _source_file(entry: RepoFile) -> SourceFile:
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    return SourceFile(path=entry.path, size=entry.size, identity=sha256 or entry.blob_id, sha256=sha256)


def _storage(model: str, cache: Path) -> Path:
    return cache / str(repo_folder_name(repo_id=model, repo_type="model"))


def open_source(model: str, revision: str | None = None) -> HubSource | LocalSource | None:
    """The hub's model of that name, pinned; offline, its cached snapshot; None for a URL.

    Environment: HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN, as huggingface_hub reads them.

    Raises:
        InputError: E104 not a hub id, E106 unreachable, E107 not found, E108 gated, E109 offline and not
            cached, E131 no such revision, E133 the hub answers with an error.
    """
    if "://" in model:
        return None
    if not _MODEL_ID.fullmatch(model) or ".." in model or "--" in model:
        raise InputError(
            f"{model!r} is neither an existing folder nor a hub id",
            code="E104",
            remedy="Give org/name, or the path of an existing folder.",
        )
    cache = Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()
    if _offline():
        return _cached(model, revision, cache)
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    return HubSource(model, _commit(model, revision, endpoint), endpoint=endpoint, cache=cache)


def _offline() -> bool:
    return constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in (
        "1",
        "ON",
        "YES",
        "TRUE",
    )


def _commit(model: str, revision: str | None, endpoint: str) -> str:
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    what = f"model {model}" if revision is None else f"model {model} at {revision!r}"
    info = retrying(
        partial(HfApi(endpoint=endpoint).model_info, model, revision=revision, timeout=TIMEOUT), what
    )
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        raise InputError(f"the hub names no commit for {what}", code="E133", remedy="Check HF_ENDPOINT.")
    return str(info.sha)


def _cached(model: str, revision: str | None, cache: Path) -> LocalSource:
    storage = _storage(model, cache)
    asked = revision or constants.DEFAULT_REVISION
    commit = asked if _COMMIT.fullmatch(asked) else None
    if commit is None and is_inside(asked) and (storage / "refs" / asked).is_file():
        commit = (storage / "refs" / asked).read_text(encoding="utf-8").strip()
    if commit is None or not _COMMIT.fullmatch(commit) or not (storage / "snapshots" / commit).is_dir():
        raise InputError(
            f"model {model} at {asked!r} is not in the hub cache {cache} and HF_HUB_OFFLINE is set",
            code="E109",
            remedy="Unset HF_HUB_OFFLINE, or download it first.",
        )
    return LocalSource(storage / "snapshots" / commit, name=model, revision=commit)
