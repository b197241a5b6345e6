"""Asks an OpenAI-compatible server: bounded in time, size and tries, the key sent nowhere else."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any

import httpx

from day0.adapters.base.errors import WorkerError, WorkerTimeout

MAX_ANSWER = 64 * 2**20
"""Bytes of one answer: the twenty likeliest tokens of 4,096 positions take some 6 MiB."""
TRIES = 4
FIRST_WAIT = 0.5  # seconds; doubles with each try
MAX_WAIT = 30.0  # seconds, also where the server asks for more
_AGAIN = frozenset({408, 425, 429, 502, 503, 504})
_CONNECT = 10.0
_WORDS = 300


@dataclass(frozen=True)
class Reply:
    """What the server answered.

    Attributes:
        status: HTTP status below 500; never one that asks for another try or another key.
        headers: names in lower case.
        body: JSON as parsed; None where the body is none.
        words: of an error, bounded, without the key.
    """

    status: int
    headers: Mapping[str, str]
    body: Any
    words: str

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300


class EndpointClient:
    """One server.

    Redirects are not followed: the key is for the host that was named.

    Args:
        url: base address, `http://host:8000/v1`.
        timeout: seconds that one answer may take as a whole.
        key: sent as a bearer token; empty: none.
        transport: of httpx; None: the network.
    """

    def __init__(
        self, url: str, *, timeout: float, key: str = "", transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self._key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            headers={**headers, "Accept": "application/json"}, transport=transport, follow_redirects=False
        )

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def get(self, path: str) -> Reply:
        """Asks for `path` below the base address, or from the server's root where it starts with two slashes.

        Raises:
            WorkerError: see `post`.
        """
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Sends JSON.

        Raises:
            WorkerError: E610, nothing answers there; E611, the key is missing or refused; E612, the server
                fails; E613, its answer is too large or no JSON.
            WorkerTimeout: E615, no whole answer within the time limit.
        """
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Reply:
        wait = FIRST_WAIT
        for left in range(TRIES - 1, -1, -1):
            try:
                reply = self._once(method, path, body)
            except (httpx.NetworkError, httpx.ProtocolError) as error:
                if not left:
                    raise self._unreachable(error) from error
                pause = wait
            else:
                if reply.status not in _AGAIN:
                    return self._accepted(reply, path)
                if not left:
                    raise self._failed(reply, path)
                pause = _asked(reply.headers) or wait
            time.sleep(min(pause, MAX_WAIT))
            wait *= 2
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Reply:
        began = time.monotonic()
        limit = httpx.Timeout(self.timeout, connect=min(_CONNECT, self.timeout))
        try:
            with self._client.stream(method, self._address(path), json=body, timeout=limit) as answer:
                held = bytearray()
                for part in answer.iter_bytes():
                    held += part
                    if len(held) > MAX_ANSWER:
                        raise WorkerError(
                            f"the endpoint {self.url} answered {path} with more than {MAX_ANSWER} bytes",
                            code="E613",
                        )
                    if time.monotonic() - began > self.timeout:  # a byte now and then keeps httpx waiting
                        raise self._late(path)
                return self._reply(answer, bytes(held), path)
        except httpx.TimeoutException as error:
            raise self._late(path) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.DecodingError, httpx.ProxyError) as error:
            raise self._unreachable(error) from error

    def _address(self, path: str) -> str:
        if path.startswith("//"):
            parts = httpx.URL(self.url)
            return str(parts.copy_with(path=path[1:], query=None))
        return f"{self.url}{path}"

    def _reply(self, answer: httpx.Response, held: bytes, path: str) -> Reply:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        try:
            body = json.loads(held) if held else None
        except (ValueError, RecursionError) as error:
            if answer.is_success:
                raise WorkerError(
                    f"the endpoint {self.url} answered {path} with something that is no JSON: "
                    f"{self._clean(held[:80].decode(errors='replace'))!r}",
                    code="E613",
                    remedy="Name the address of its API, which mostly ends in /v1.",
                ) from error
            body = None
        words = "" if answer.is_success else self._clean(_message(body) or held.decode(errors="replace"))
        return Reply(answer.status_code, headers, body, words)

    def _accepted(self, reply: Reply, path: str) -> Reply:
        if reply.status in (401, 403):
            raise WorkerError(
                f"the endpoint {self.url} refuses the request with status {reply.status}: {reply.words}",
                code="E611",
                remedy="Set the variable that holds its key; see docs/endpoint.md.",
            )
        if reply.status >= 500:
            raise self._failed(reply, path)
        if 300 <= reply.status < 400:
            raise WorkerError(
                f"the endpoint {self.url} sends {path} elsewhere (status {reply.status})",
                code="E612",
                remedy="Name the address that it leads to.",
            )
        return reply

    def _failed(self, reply: Reply, path: str) -> WorkerError:
        return WorkerError(
            f"the endpoint {self.url} failed at {path} with status {reply.status}: {reply.words}",
            code="E612",
            remedy="Look into the server's log.",
        )

    def _unreachable(self, error: Exception) -> WorkerError:
        said = self._clean(str(error)) or type(error).__name__
        return WorkerError(
            f"nothing answers at the endpoint {self.url}: {said}",
            code="E610",
            remedy="Start the server, or correct the address.",
        )

    def _late(self, path: str) -> WorkerTimeout:
        return WorkerTimeout(
            f"the endpoint {self.url} gave no whole answer to {path} within {self.timeout:g} s",
            code="E615",
            remedy="Raise --timeout, or look whether the server is busy.",
        )

    def _clean(self, text: str) -> str:
        """One line of bounded length in which the key does not stand."""
        line = " ".join(text.split())
        return (line.replace(self._key, "***") if self._key else line)[:_WORDS]


def _message(body: Any) -> str:
    """What an error's JSON says, in the forms that servers use."""
    for _ in range(3):
        if isinstance(body, str):
            return body
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, dict):
            return ""
        body = next((body[key] for key in ("error", "message", "detail", "msg") if body.get(key)), None)
    return body if isinstance(body, str) else ""


def _asked(headers: Mapping[str, str]) -> float:
    """Seconds after which the server wants to be asked again; 0 where it does not say."""
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit() and len(said) < 8:
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0
