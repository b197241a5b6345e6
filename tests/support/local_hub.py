"""A hub on loopback: the endpoints that huggingface_hub uses, faults on demand, a count of what was asked."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+?)(?:/(?P<what>revision|tree)/(?P<rev>[^/]+))?/?")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_LARGE = 64 * 2**20


@dataclass
class Repository:
    """One model on the hub.

    Attributes:
        folder: its files, read afresh for each request.
        commit: full hash.
        refs: branch or tag -> commit.
        gated: files answer 403, the listing works.
        private: everything answers as if it did not exist, for lack of a token.
    """

    folder: Path
    commit: str
    refs: dict[str, str]
    gated: bool = False
    private: bool = False

    def files(self) -> dict[str, Path]:
        """Path inside the repository -> file."""
        found = {place.relative_to(self.folder).as_posix(): place for place in self.folder.rglob("*")}
        return {path: place for path, place in sorted(found.items()) if place.is_file()}


@dataclass
class Fault:
    """What goes wrong with requests whose path matches, so many times.

    Attributes:
        pattern: shell pattern on the request's path.
        times: how often; each match uses one up.
        status: answered instead; 0 leaves the status alone.
        headers: sent along.
        cut_after: bytes of the body after which the connection ends; None: all of it.
        method: the only one it applies to; empty for any.
    """

    pattern: str
    times: int = 1
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    method: str = ""


class LocalHub:
    """A hub of the given repositories, running until `close`.

    Attributes:
        requests: method and path -> number of requests.
        served: path -> bytes of bodies sent.
        ignore_ranges: whether every range is answered with the whole file.
        delay: seconds before each answer.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self.served: Counter[str] = Counter()
        self.ignore_ranges = False
        self.delay = 0.0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(self, name: str, folder: Path, **options: Any) -> Repository:
        """Puts a folder on the hub under a name; its commit is unique unless given."""
        files = [place for place in folder.rglob("*") if place.is_file()]
        listing = sorted((str(place.relative_to(folder)), place.stat().st_size) for place in files)
        seed = repr((self.url, name, str(folder), listing))  # no two hubs share a commit
        commit = options.pop("commit", None) or hashlib.sha1(seed.encode()).hexdigest()
        repository = Repository(folder, commit, {"main": commit}, **options)
        self.repositories[name] = repository
        return repository

    def fail(self, pattern: str, **options: Any) -> None:
        """From now on requests that match go wrong, see `Fault`."""
        self.faults.append(Fault(pattern, **options))

    def count(self, pattern: str = "*", method: str = "*") -> int:
        """Number of requests whose path and method match."""
        return sum(
            number
            for (asked, path), number in self.requests.items()
            if fnmatch.fnmatchcase(path, pattern) and fnmatch.fnmatchcase(asked, method)
        )

    def bytes_of(self, pattern: str = "*") -> int:
        """Bytes of bodies sent for matching paths."""
        return sum(number for path, number in self.served.items() if fnmatch.fnmatchcase(path, pattern))

    def forget(self) -> None:
        """Starts counting anew."""
        with self.lock:
            self.requests.clear()
            self.served.clear()

    def take_fault(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, used up by it."""
        with self.lock:
            for fault in self.faults:
                if (
                    fault.times > 0
                    and fnmatch.fnmatchcase(path, fault.pattern)
                    and fault.method in ("", method)
                ):
                    fault.times -= 1
                    return fault
        return None

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    """Answers for the hub that its class belongs to."""

    hub: LocalHub

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Stays silent."""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.hub.lock:
            self.hub.requests[self.command, path] += 1
        if self.hub.delay:
            time.sleep(self.hub.delay)
        fault = self.hub.take_fault(self.command, path)
        if fault is not None and fault.status:
            self._send(fault.status, b"{}", dict(fault.headers), body=body)
            return
        status, headers, data = self._content(path)
        cut = fault.cut_after if fault is not None else None
        self._send(status, data, headers, body=body, cut=cut)

    def _content(self, path: str) -> tuple[int, dict[str, str], bytes | tuple[Path, int, int]]:
        api, resolve = _API.fullmatch(path), _RESOLVE.fullmatch(path)
        match = api or resolve
        repository = self.hub.repositories.get(match["repo"]) if match else None
        if match is None or repository is None or repository.private:
            return _error(401 if repository is not None else 404, "RepoNotFound", "Repository not found")
        revision = match["rev"] or "main"
        commit = repository.commit if revision == repository.commit else repository.refs.get(revision)
        if commit is None:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if resolve is not None:
            return self._file(repository, commit, resolve["path"])
        if api is not None and api["what"] == "tree":
            return _json([_entry(name, place) for name, place in repository.files().items()])
        return _json(_info(match["repo"], repository, commit))

    def _file(
        self, repository: Repository, commit: str, path: str
    ) -> tuple[int, dict[str, str], bytes | tuple[Path, int, int]]:
        if repository.gated:
            return _error(403, "GatedRepo", "Access to this model is restricted")
        place = repository.files().get(path)
        if place is None:
            return _error(404, "EntryNotFound", f"{path} does not exist")
        size = place.stat().st_size
        headers = {
            "ETag": f'"{_hashes(place)[1] or _hashes(place)[0]}"',
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(size),
            "Accept-Ranges": "bytes",
        }
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None or self.hub.ignore_ranges:
            return 200, headers, (place, 0, size)
        start = int(asked[1])
        stop = min(int(asked[2]) + 1 if asked[2] else size, size)
        if start >= size:
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return 206, headers, (place, start, stop)

    def _send(
        self,
        status: int,
        data: bytes | tuple[Path, int, int],
        headers: dict[str, str],
        *,
        body: bool,
        cut: int | None = None,
    ) -> None:
        length = len(data) if isinstance(data, bytes) else data[2] - data[1]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if not body:
            return
        path = unquote(urlsplit(self.path).path)
        try:
            for chunk in _chunks(data, length if cut is None else min(cut, length)):
                with self.hub.lock:  # before the client can have it and look
                    self.hub.served[path] += len(chunk)
                self.wfile.write(chunk)
        except ConnectionError:  # the client has had enough
            self.close_connection = True
        if cut is not None and cut < length:
            self.close_connection = True


def _chunks(data: bytes | tuple[Path, int, int], length: int) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data[:length]
        return
    place, start, _ = data
    with place.open("rb") as file:
        file.seek(start)
        left = length
        while left:
            chunk = file.read(min(left, 65536))
            yield chunk
            left -= len(chunk)


def _json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _error(status: int, code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    return status, {"X-Error-Code": code, "X-Error-Message": message}, json.dumps({"error": message}).encode()


def _info(name: str, repository: Repository, commit: str) -> dict[str, Any]:
    return {
        "_id": "0",
        "id": name,
        "modelId": name,
        "sha": commit,
        "private": repository.private,
        "gated": "manual" if repository.gated else False,
        "siblings": [{"rfilename": path} for path in repository.files()],
        "tags": [],
        "downloads": 0,
    }


def _entry(path: str, place: Path) -> dict[str, Any]:
    blob, sha256 = _hashes(place)
    entry: dict[str, Any] = {"type": "file", "path": path, "size": place.stat().st_size, "oid": blob}
    if sha256:
        entry["lfs"] = {"oid": sha256, "size": place.stat().st_size, "pointerSize": 134}
    return entry


def _hashes(place: Path) -> tuple[str, str]:
    """Git blob hash and, for what would lie in LFS, SHA-256; of name, size and time where it is huge."""
    size = place.stat().st_size
    data = (
        place.read_bytes() if size <= _LARGE else f"{place.name}:{size}:{place.stat().st_mtime_ns}".encode()
    )
    blob = hashlib.sha1(b"blob %d\0" % size + data).hexdigest()
    lfs = place.suffix in (".safetensors", ".gguf", ".bin", ".pt", ".pth")
    return blob, hashlib.sha256(data).hexdigest() if lfs else ""


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A hub of one's own, to which this process and its children are pointed, with an empty cache."""
    hub = LocalHub()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield hub
    hub.close()
