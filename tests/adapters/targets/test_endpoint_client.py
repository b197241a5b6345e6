from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from day0.adapters.base.errors import WorkerError, WorkerTimeout
from day0.adapters.targets import endpoint_client
from day0.adapters.targets.endpoint_client import EndpointClient

URL = "http://127.0.0.1:9/v1"
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def client(handler: Handler, key: str = "") -> EndpointClient:
    return EndpointClient(URL, timeout=5.0, key=key, transport=httpx.MockTransport(handler))


def failure(handler: Handler, key: str = "") -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        client(handler, key).post("/completions", {"model": "m"})
    return caught.value


def test_json_goes_and_comes_with_the_key_as_a_bearer() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"a": 1}, headers={"Server": "x"})

    reply = client(handler, "secret").post("/completions", {"model": "m"})
    assert (reply.ok, reply.body, reply.headers["server"]) == (True, {"a": 1}, "x")
    assert str(seen[0].url) == f"{URL}/completions"
    assert json.loads(seen[0].content) == {"model": "m"}
    assert seen[0].headers["authorization"] == "Bearer secret"
    client(handler).get("//version")
    assert str(seen[1].url) == "http://127.0.0.1:9/version"
    assert "authorization" not in seen[1].headers


def test_a_busy_server_is_asked_again_when_it_says(waits: list[float]) -> None:
    answers = [
        httpx.Response(503, headers={"Retry-After": "7"}),
        httpx.Response(429, headers={"Retry-After": "100000"}),
        httpx.Response(502),
        httpx.Response(200, json=[]),
    ]
    assert client(lambda request: answers.pop(0)).get("/models").ok
    assert waits == [7.0, 30.0, 2.0]


def test_it_gives_up_after_four_tries(waits: list[float]) -> None:
    asked: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(1)
        raise httpx.ConnectError("refused")

    error = failure(handler)
    assert (error.code, len(asked), waits) == ("E610", 4, [0.5, 1.0, 2.0])
    assert "nothing answers at the endpoint http://127.0.0.1:9/v1: refused" in error.message
    assert failure(lambda request: httpx.Response(503, text="busy")).code == "E612"


@pytest.mark.parametrize(
    "body", [{"error": {"message": "no"}}, {"message": "no"}, {"detail": [{"msg": "no"}]}]
)
def test_an_error_is_told_in_the_servers_words(body: object) -> None:
    assert client(lambda request: httpx.Response(400, json=body)).get("/models").words == "no"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (httpx.Response(401, json={"error": {"message": "bad key s3cret"}}), "E611"),
        (httpx.Response(403, text="s3cret is not allowed"), "E611"),
        (httpx.Response(500, text="s3cret broke it"), "E612"),
        (httpx.Response(302, headers={"location": "http://elsewhere/v1"}), "E612"),
        (httpx.Response(200, text="<html>s3cret</html>"), "E613"),
        (httpx.Response(200, text="[" * 200_000), "E613"),
        (httpx.Response(200, text='{"n": ' + "9" * 10_000 + "}"), "E613"),
        (httpx.Response(200, content=b"\xff\xfe"), "E613"),
    ],
)
def test_answers_that_cannot_be_used_and_no_key_in_any_word(answer: httpx.Response, code: str) -> None:
    error = failure(lambda request: answer, "s3cret")
    assert error.code == code
    assert "s3cret" not in str(error)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_client, "MAX_ANSWER", 1000)
    error = failure(lambda request: httpx.Response(200, text="[" + "1," * 1000 + "1]"))
    assert (error.code, "more than 1000 bytes" in error.message) == ("E613", True)


class _Dripping(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(40):
            self.wfile.write(b" ")
            self.server.pause.wait(0.1)  # type: ignore[attr-defined]  # set by the fixture

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def dripping() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Dripping)
    server.pause = threading.Event()  # type: ignore[attr-defined]  # read by the handler
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.pause.set()  # type: ignore[attr-defined]  # ends what still drips
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_byte_now_and_then_does_not_hold_it_forever(dripping: str) -> None:
    with EndpointClient(dripping, timeout=0.5) as asked, pytest.raises(WorkerTimeout) as caught:
        asked.get("/models")
    assert caught.value.code == "E615"


def test_a_port_where_nothing_listens() -> None:
    with (
        EndpointClient("http://127.0.0.1:9/v1", timeout=2.0) as asked,
        pytest.raises(WorkerError, match="E610"),
    ):
        asked.get("/models")
