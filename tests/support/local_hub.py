"""A hub on loopback: the endpoints that huggingface_hub uses, faults on demand, a count of what was asked."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+?)(?:/(?P<what>revision|tree)/(?P<rev>[^/]+))?/?")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_LARGE = 64 * 2**20
_SCOPE = (
    "Please enable access to public gated repositories in your fine-grained token settings to view this "
    "repository."
)


@dataclass
class Repository:
    """One model on the hub.

    Attributes:
        folder: its files, read afresh for each request.
        commit: full hash.
        refs: branch or tag -> commit.
        gated: files are refused, the listing works: `True` or `terms` (403, the terms are not accepted),
            `anonymous` (401, no token was sent), `scope` (403, the token may not read gated repositories).
        private: everything answers as if it did not exist, for lack of a token.
    """

    folder: Path
    commit: str
    refs: dict[str, str]
    gated: bool | str = False
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
        each: whether it is so often for each path instead of for all together.
        status: answered instead; 0 leaves the status alone.
        headers: sent along.
        cut_after: bytes of the body after which the connection ends; None: all of it.
        method: the only one it applies to; empty for any.
        spoil: whether the body's first byte is another one.
    """

    pattern: str
    times: int = 1
    each: bool = False
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    method: str = ""
    spoil: bool = False
    met: Counter[str] = field(default_factory=Counter)

    def take(self, method: str, path: str) -> bool:
        """Whether this request meets it, which uses it up."""
        if not fnmatch.fnmatchcase(path, self.pattern) or self.method not in ("", method):
            return False
        key = path if self.each else ""
        self.met[key] += 1
        return self.met[key] <= self.times


class LocalHub:
    """A hub of the given repositories, running until `close`.

    Args:
        handler: what answers, derived from `Handler`; None: that itself.

    Attributes:
        requests: method and path -> number of requests.
        served: path -> bytes of bodies sent.
        ranges: of files that were asked for, in the order in which the requests came: path, start, stop.
        connections: number of connections that were opened.
        secrets: paths that came with an `Authorization`, with the port they came to.
        ignore_ranges: whether every range is answered with the whole file.
        delay: seconds before each answer.
        pace: seconds before each 64 KiB of a body.
        page: files on one page of a tree; 0: all.
        bare: whether files come without ETag, Content-Length and Content-Range, as from some mirrors.
        redirect: whether large files lie on another host (port), as the hub's do.
        foreign_links: whether a tree's next page is named on another host than was asked, as by some mirrors.
    """

    def __init__(self, handler: type[Handler] | None = None) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self.served: Counter[str] = Counter()
        self.ranges: list[tuple[str, int, int]] = []
        self.connections = 0
        self.secrets: list[tuple[str, int]] = []
        self.ignore_ranges = False
        self.delay = 0.0
        self.pace = 0.0
        self.page = 0
        self.bare = False
        self.redirect = False
        self.foreign_links = False
        self.lock = threading.Lock()
        answers = type("Handler", (handler or Handler,), {"hub": self})
        self._servers = [_Server(("127.0.0.1", 0), answers) for _ in range(2)]
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            for server in self._servers
        ]
        for thread in self._threads:
            thread.start()
        self.url, self.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)

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
            self.ranges.clear()

    def take_fault(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, used up by it."""
        with self.lock:
            return next((fault for fault in self.faults if fault.take(method, path)), None)

    def close(self) -> None:
        """Ends the server."""
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join(5)


class _Server(ThreadingHTTPServer):
    """Takes many connections at once without making any wait for the next SYN."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is said of a client that has had enough."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers for the hub that its class belongs to; `send_body` may be another's."""

    hub: LocalHub

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536

    def setup(self) -> None:
        """Counts the connection."""
        super().setup()
        with self.hub.lock:
            self.hub.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Stays silent."""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        port = self.connection.getsockname()[1]
        with self.hub.lock:
            self.hub.requests[self.command, path] += 1
            if self.headers.get("Authorization"):
                self.hub.secrets.append((path, int(port)))
        if self.hub.delay:
            time.sleep(self.hub.delay)
        fault = self.hub.take_fault(self.command, path)
        if fault is not None and fault.status:
            self._send(fault.status, b"{}", dict(fault.headers), body=body)
            return
        status, headers, data = self._content(path)
        cut = fault.cut_after if fault is not None else None
        if fault is not None and fault.spoil and not isinstance(data, bytes):
            whole = data[0].read_bytes()[data[1] : data[2]]
            data = bytes([whole[0] ^ 255]) + whole[1:]
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
            return self._tree(repository)
        return _json(_info(match["repo"], repository, commit))

    def _tree(self, repository: Repository) -> tuple[int, dict[str, str], bytes]:
        files = list(repository.files().items())
        size = self.hub.page or len(files)
        cursor = parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0]
        first = int(cursor)
        xet = self.hub.redirect
        answer = _json([_entry(name, place, xet=xet) for name, place in files[first : first + size]])
        if first + size < len(files):
            host = "http://huggingface.invalid" if self.hub.foreign_links else self.hub.url
            path = urlsplit(self.path).path
            answer[1]["Link"] = f'<{host}{path}?recursive=true&cursor={first + size}>; rel="next"'
        return answer

    def _file(
        self, repository: Repository, commit: str, path: str
    ) -> tuple[int, dict[str, str], bytes | tuple[Path, int, int]]:
        if repository.gated:
            return _refusal(repository.gated)
        place = repository.folder / path
        if not place.is_file():
            return _error(404, "EntryNotFound", f"{path} does not exist")
        size = place.stat().st_size
        headers = {
            "ETag": f'"{_hashes(place)[1] or _hashes(place)[0]}"',
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(size),
            "Accept-Ranges": "bytes",
        }
        at_home = self.connection.getsockname()[1] == urlsplit(self.hub.url).port
        if self.hub.redirect and at_home and _hashes(place)[1]:
            signed = f"{self.hub.storage}{urlsplit(self.path).path}?X-Signature=secret"
            return 302, {**headers, "X-Linked-ETag": headers["ETag"], "Location": signed}, b""
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        span = (int(asked[1]), min(int(asked[2] or size), size - 1) + 1) if asked else (0, size)
        with self.hub.lock:
            self.hub.ranges.append((path, *span))
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
        bare = self.hub.bare and "ETag" in headers
        self.send_response(status)
        for name, value in headers.items():
            if not bare or name not in ("ETag", "Content-Range"):
                self.send_header(name, value)
        if bare:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if not body:
            return
        try:
            self.send_body(data, length if cut is None else min(cut, length))
            self.wfile.flush()
        except ConnectionError:  # the client has had enough
            self.close_connection = True
        if cut is not None and cut < length:
            self.close_connection = True

    def send_body(self, data: bytes | tuple[Path, int, int], length: int) -> None:
        """Sends so many bytes of what is given, or of a file from one place to another."""
        path = unquote(urlsplit(self.path).path)
        for chunk in _chunks(data, length):
            if self.hub.pace:
                time.sleep(self.hub.pace)
            with self.hub.lock:  # before the client can have it and look
                self.hub.served[path] += len(chunk)
            self.wfile.write(chunk)


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


def _refusal(kind: bool | str) -> tuple[int, dict[str, str], bytes]:
    if kind == "anonymous":
        return _error(401, "GatedRepo", "Access to this model is restricted. Please log in.")
    if kind == "scope":
        return 403, {"X-Error-Message": _SCOPE}, json.dumps({"error": _SCOPE}).encode()
    return _error(403, "GatedRepo", "Access to this model is restricted")


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


def _entry(path: str, place: Path, *, xet: bool = False) -> dict[str, Any]:
    blob, sha256 = _hashes(place)
    entry: dict[str, Any] = {"type": "file", "path": path, "size": place.stat().st_size, "oid": blob}
    if sha256:
        entry["lfs"] = {"oid": sha256, "size": place.stat().st_size, "pointerSize": 134}
        if xet:
            entry["xetHash"] = sha256[::-1]
    return entry


def _hashes(place: Path) -> tuple[str, str]:
    """Git blob hash and, for what would lie in LFS, SHA-256; of name, size and time where it is huge."""
    info = place.stat()
    return _hashes_of(place, info.st_size, info.st_mtime_ns, info.st_ino)


@lru_cache(100_000)
def _hashes_of(place: Path, size: int, mtime: int, inode: int) -> tuple[str, str]:
    data = place.read_bytes() if size <= _LARGE else f"{place.name}:{size}:{mtime}".encode()
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
