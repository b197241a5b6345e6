"""An S3 server on loopback (moto's), with requests and bytes counted and faults on demand."""

from __future__ import annotations

import fnmatch
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

BUCKET = "models"
_XML = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


@dataclass
class ObjectFault:
    """What goes wrong with requests whose path matches, so many times for each path.

    Attributes:
        pattern: shell pattern on the path.
        code: S3's error code, answered instead; empty: none.
        status: that goes with it.
        headers: sent along.
        cut_after: bytes of the body after which the connection ends.
        times: how often for each path.
    """

    pattern: str
    code: str = ""
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    times: int = 1
    met: Counter[str] = field(default_factory=Counter)


class ObjectServer:
    """moto's S3 behind a counter.

    Attributes:
        requests: method and path -> number.
        served: path -> bytes of bodies.
        ranges: path -> the ranges that were asked for.
        url: for AWS_ENDPOINT_URL.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, type: str, message: str, *args: Any) -> None:
                """Stays silent."""

        self.faults: list[ObjectFault] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self.served: Counter[str] = Counter()
        self.ranges: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def put(self, prefix: str, folder: Path) -> None:
        """Puts the files of a folder below a prefix of the bucket."""
        client = self.client()
        for place in sorted(folder.rglob("*")):
            if place.is_file():
                key = f"{prefix}/{place.relative_to(folder).as_posix()}"
                client.put_object(Bucket=BUCKET, Key=key, Body=place.read_bytes())

    def client(self) -> Any:
        """A client of one's own."""
        import boto3

        return boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test",
            aws_secret_access_key="test",
        )  # fmt: skip

    def fail(self, pattern: str, **options: Any) -> None:
        """From now on requests that match go wrong, see `ObjectFault`."""
        self.faults.append(ObjectFault(pattern, **options))

    def count(self, pattern: str = "*") -> int:
        """Number of requests whose path matches."""
        return sum(
            number for (_, path), number in self.requests.items() if fnmatch.fnmatchcase(path, pattern)
        )

    def forget(self) -> None:
        """Starts counting anew."""
        with self._lock:
            self.requests.clear()
            self.served.clear()
            self.ranges.clear()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        fault = self._note(environ, path)
        if fault is not None and fault.code:
            body = _XML.format(code=fault.code).encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response(f"{fault.status} {fault.code}", [*headers, *fault.headers.items()])
            return [body]
        whole = b"".join(self._moto(environ, start_response))
        cut = fault.cut_after if fault is not None else None
        sent = whole if cut is None else whole[:cut]
        with self._lock:
            self.served[path] += len(sent)
        return [sent]

    def _note(self, environ: WSGIEnvironment, path: str) -> ObjectFault | None:
        with self._lock:
            self.requests[environ["REQUEST_METHOD"], path] += 1
            if environ.get("HTTP_RANGE"):
                self.ranges.setdefault(path, []).append(environ["HTTP_RANGE"])
            for fault in self.faults:
                if fnmatch.fnmatchcase(path, fault.pattern):
                    fault.met[path] += 1
                    if fault.met[path] <= fault.times:
                        return fault
        return None


@pytest.fixture(scope="module")
def running_object_server() -> Iterator[ObjectServer]:
    """One server for a module: starting it takes most of a second."""
    server = ObjectServer()
    server.client().create_bucket(Bucket=BUCKET)
    yield server
    server.close()


@pytest.fixture
def object_server(
    running_object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ObjectServer]:
    """The server with its bucket empty, to which this process is pointed."""
    import s3fs

    server = running_object_server
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield server
    server.faults.clear()
    listed = server.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])
    for item in listed:
        server.client().delete_object(Bucket=BUCKET, Key=item["Key"])
    server.forget()
