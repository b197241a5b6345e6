"""The one client: connections kept, secrets kept to their host, odd servers understood."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from day0.adapters.base.errors import SourceError
from day0.adapters.sources.http_client import Request, host_of, opened
from day0.adapters.sources.http_failure import HttpFailure
from day0.adapters.sources.http_ranges import RemoteFile
from support.clock import Clock
from support.local_hub import LocalHub

pytestmark = pytest.mark.usefixtures("clock")
CONTENT = bytes(range(256)) * 40


@pytest.fixture
def hub(local_hub: LocalHub, tmp_path: Path) -> LocalHub:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "weights.safetensors").write_bytes(CONTENT)
    local_hub.add("org/model", folder)
    return local_hub


def remote(hub: LocalHub, size: int = len(CONTENT), **headers: str) -> RemoteFile:
    url = f"{hub.url}/org/model/resolve/main/weights.safetensors"
    return RemoteFile(Request(url, {}, headers), size, "the file")


def test_connections_are_kept_and_shared_by_threads(hub: LocalHub) -> None:
    file = remote(hub)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda start: file.read(start, start + 100), range(0, 6400, 100)))
    assert b"".join(read) == CONTENT[:6400]
    assert hub.count() == 64
    assert hub.connections <= 8


def test_an_error_does_not_cost_the_connection(hub: LocalHub) -> None:
    hub.fail("*", status=503, times=2)
    assert remote(hub).read(0, 10) == CONTENT[:10]
    assert hub.connections == 1


def test_a_redirect_is_followed_once_and_the_secret_stays_at_home(hub: LocalHub) -> None:
    hub.redirect = True
    file = remote(hub, Authorization="Bearer secret")
    assert file.read(0, 8) + file.read(8, 100) + file.read(100, 200) == CONTENT[:200]
    assert hub.count() == 4  # one at home, then three at the place that it named
    assert [port for _, port in hub.secrets] == [int(hub.url.rpartition(":")[2])]


def test_a_place_whose_time_is_over_is_asked_for_anew(hub: LocalHub) -> None:
    hub.redirect = True
    file = remote(hub)
    assert file.read(0, 8) == CONTENT[:8]
    hub.fail("*", status=403)
    hub.forget()
    assert file.read(8, 16) == CONTENT[8:16]
    assert hub.count() == 3


@pytest.mark.parametrize("chunk", [1, 7, 1000, 100_000])
def test_a_stream_is_taken_up_where_it_was_cut(hub: LocalHub, chunk: int) -> None:
    hub.fail("*", cut_after=3000, times=3)
    stop = 8000 if chunk > 1 else 3500
    parts = list(remote(hub).stream(10, stop, chunk))
    assert b"".join(parts) == CONTENT[10:stop]
    assert max(map(len, parts)) <= chunk
    assert hub.bytes_of() == stop - 10


def test_a_spoiled_whole_file_is_not_taken_for_the_file(hub: LocalHub) -> None:
    with pytest.raises(SourceError, match="E206"):
        remote(hub, size=len(CONTENT) + 5).read(0, len(CONTENT) + 5)
    with pytest.raises(SourceError, match="E206"):
        remote(hub, size=len(CONTENT) + 5).read(0, 10)
    with pytest.raises(SourceError, match="E202"):
        remote(hub, size=len(CONTENT) + 50).read(len(CONTENT) + 10, len(CONTENT) + 20)


def test_a_file_of_a_mirror_that_says_nothing_about_it(hub: LocalHub) -> None:
    hub.bare = True
    assert remote(hub).read(0, len(CONTENT)) == CONTENT
    assert remote(hub).read(50, 60) == CONTENT[50:60]


class _Odd(BaseHTTPRequestHandler):
    """Answers as the path says: `/STATUS?header=value`, with a fixed body."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Stays silent."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.send_response(int(path.strip("/")))
        for item in query.split("&"):
            name, _, value = item.partition("=")
            self.send_header(name, self.path if value == "self" else value.replace("+", " "))
        body = b"0123456789"
        if "Content-Length" not in query:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def odd() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("206?Content-Range=bytes+0-9/100", "E205"),  # not the bytes that were asked for
        ("206?Content-Range=bytes+20-99/100", "E205"),  # more of them
        ("206?Content-Range=bytes+20-29/90", "E206"),  # of another file
        ("206?Content-Range=nonsense", "E205"),
        ("206?Content-Type=multipart/byteranges;+boundary=x", "E205"),
        ("206?Content-Range=bytes+20-29/100&Content-Encoding=gzip", "E205"),
        ("206?Content-Length=80", "E205"),
        ("204?X=y", "E205"),
    ],
)
def test_an_answer_that_is_not_the_range_is_refused(odd: str, answer: str, code: str) -> None:
    with pytest.raises(SourceError, match=code):
        RemoteFile(Request(f"{odd}/{answer}"), 100, "the file").read(20, 30)


def test_a_shorter_range_than_asked_is_taken_and_the_rest_asked_for(odd: str, clock: Clock) -> None:
    file = RemoteFile(Request(f"{odd}/206?Content-Range=bytes+20-29/100"), 100, "the file")
    with pytest.raises(SourceError, match="E205"):  # the second answer is the first one's bytes again
        file.read(20, 40)


@pytest.mark.parametrize("target", ["", "ftp://elsewhere/x", "file:///etc/passwd"])
def test_redirects_that_lead_nowhere(odd: str, target: str) -> None:
    with pytest.raises(HttpFailure, match="redirect"), opened(Request(f"{odd}/302?Location={target}")):
        pass


def test_redirects_in_a_circle_end(odd: str) -> None:
    with pytest.raises(HttpFailure, match="more than 5"), opened(Request(f"{odd}/302?Location=self")):
        pass


def test_no_address_is_shown_with_what_is_secret_in_it() -> None:
    assert host_of("https://user:secret@host.example/path?X-Signature=secret") == "host.example:443"
    assert host_of("http://[::1]:8080/x") == "::1:8080"


def test_a_body_larger_than_its_limit_is_refused(hub: LocalHub) -> None:
    url = f"{hub.url}/org/model/resolve/main/weights.safetensors"
    with opened(Request(url)) as answer, pytest.raises(HttpFailure, match="more than 100 bytes"):
        answer.read_all(100)


def test_a_proxy_is_used_where_the_environment_names_one(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(HttpFailure, match="no connection"):
        remote(hub).read(0, 10)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert remote(hub).read(0, 10) == CONTENT[:10]
