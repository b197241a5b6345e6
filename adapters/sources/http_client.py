"""One pooled HTTP client for all threads: connections kept, redirects followed, secrets for one host only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from .http_failure import HttpFailure
from .retry import gate_of

TIMEOUT = urllib3.Timeout(connect=10.0, read=30.0)  # seconds without a byte
DRAIN_TIMEOUT = 2.0  # seconds that the rest of an error may take
MAX_CONNECTIONS = 32  # kept open for each host; callers use up to 32 threads
MAX_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_PROXIES = tuple(
    name for word in ("http", "https", "all", "no") for name in (f"{word}_proxy", f"{word.upper()}_PROXY")
)
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        url: where.
        headers: sent to whatever host answers in the end.
        private: sent to the host of `url` only, e.g. the authorisation.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """An answer whose status is 2xx, its body not yet read.

    Attributes:
        status: of the answer.
        headers: names in lower case.
        url: where the answer came from, after redirects.
        body: to be read from; left early, its connection is closed.
    """

    status: int
    headers: Mapping[str, str]
    url: str
    body: Any

    def read(self, length: int) -> bytes:
        """At most that many bytes as they stand on the wire; none at the end.

        Raises:
            HttpFailure: the connection ended or stood still before the promised bytes had come.
        """
        try:
            return bytes(self.body.read(length, decode_content=False))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(error, self.url, begun=True) from error

    def read_all(self, limit: int) -> bytes:
        """The whole body, decompressed.

        Raises:
            HttpFailure: the connection ended early, or the body is larger than `limit`.
        """
        parts, held = [], 0
        try:
            for part in self.body.stream(65_536, decode_content=True):
                parts.append(part)
                held += len(part)
                if held > limit:
                    raise HttpFailure(
                        f"the answer has more than {limit} bytes", host=host_of(self.url), status=self.status
                    )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(error, self.url, begun=True) from error
        return b"".join(parts)


@contextmanager
def opened(request: Request) -> Iterator[Answer]:
    """Asks once, following redirects; waits first where a host has asked for silence.

    A body that was read to its end leaves its connection in the pool; any other closes it.

    Raises:
        HttpFailure: nothing answers, or the status is no 2xx.
    """
    response, url = _follow(request)
    try:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if not 200 <= response.status < 300:
            raise HttpFailure(
                f"status {response.status}", host=host_of(url), status=response.status, headers=headers
            )
        yield Answer(response.status, headers, url, response)
    finally:
        _leave(response)


def host_of(url: str) -> str:
    """`name:port` of an address, without anything secret."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or {'http': 80}.get(parts.scheme, 443)}"


def _follow(request: Request) -> tuple[Any, str]:
    url, home = request.url, _origin(request.url)
    for _ in range(MAX_REDIRECTS + 1):
        headers = {**request.headers, **(request.private if _origin(url) == home else {})}
        response = _ask(url, headers)
        if response.status not in _MOVED:
            return response, url
        target = response.headers.get("Location", "")
        _leave(response)
        url = urljoin(url, target)
        if not target or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise HttpFailure("a redirect leads nowhere", host=host_of(request.url), status=502)
    raise HttpFailure(f"more than {MAX_REDIRECTS} redirects", host=host_of(request.url), status=310)


def _ask(url: str, headers: Mapping[str, str]) -> Any:
    gate_of(host_of(url)).wait()
    try:
        return _CLIENT.manager(url).request(
            "GET", url, headers=dict(headers), preload_content=False, redirect=False, retries=False,
            timeout=TIMEOUT,
        )  # fmt: skip
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise _no_answer(error, url, begun=False) from error


def _origin(url: str) -> tuple[str, str]:
    return urlsplit(url).scheme, host_of(url)


def _leave(response: Any) -> None:
    """Keeps the connection where its body is read or short, closes it where more is to come."""
    try:
        left = response.length_remaining
        if left is not None and left <= 4096:  # an error's text; cheaper than another connection
            plug = getattr(response.connection, "sock", None)
            if left and plug is not None:
                plug.settimeout(DRAIN_TIMEOUT)
            response.drain_conn()
        elif left is None or left > 0:
            response.close()
    except (urllib3.exceptions.HTTPError, OSError):
        response.close()
    response.release_conn()


def _no_answer(error: Exception, url: str, *, begun: bool) -> HttpFailure:
    errors = urllib3.exceptions
    unreached = isinstance(error, errors.NewConnectionError | errors.ConnectTimeoutError | errors.ProxyError)
    text = type(error).__name__
    if isinstance(error, errors.IncompleteRead):
        text = "the connection ended before all bytes had come"
    elif isinstance(error, errors.ReadTimeoutError):
        text = f"no byte came for {TIMEOUT.read_timeout:.0f} s"
    elif unreached:
        text = f"no connection to {host_of(url)}"
    elif isinstance(error, errors.SSLError):
        text = f"no trusted connection to {host_of(url)}: {error}"
    dropped = not begun and isinstance(error, errors.ProtocolError)
    refused = unreached or isinstance(error, errors.SSLError | errors.LocationValueError | ValueError)
    return HttpFailure(text, host=host_of(url), refused=refused, dropped=dropped)


class _Client:
    """The pools: one manager for direct connections, one for each proxy; made anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}

    def manager(self, url: str) -> urllib3.PoolManager:
        """The pool manager that reaches the address, by the proxies that the environment names."""
        parts = urlsplit(url)
        proxies = _proxies(tuple(map(os.environ.get, _PROXIES)))
        proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
        if proxy and proxy_bypass(parts.hostname or ""):
            proxy = ""
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = _manager(proxy)
            return self._managers[proxy]


@lru_cache(maxsize=4)
def _proxies(_environment: tuple[str | None, ...]) -> Mapping[str, str]:
    """What the environment or the system names; asking goes through all variables, for every request."""
    return getproxies()


def _manager(proxy: str) -> urllib3.PoolManager:
    options: dict[str, Any] = {"num_pools": 16, "maxsize": MAX_CONNECTIONS, "ca_certs": _trusted()}
    if not proxy:
        return urllib3.PoolManager(**options)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    login = f"{parts.username}:{parts.password or ''}" if parts.username else None
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
    return urllib3.ProxyManager(parts.geturl(), proxy_headers=headers, **options)


def _trusted() -> str | None:
    """The file of certificates to trust: named by the environment, else certifi's, else the system's."""
    named = next((os.environ[name] for name in _CERTIFICATES if os.environ.get(name)), None)
    if named is not None:
        return named
    try:
        import certifi
    except ImportError:
        return None
    return str(certifi.where())


_CLIENT = _Client()


def _forget() -> None:
    global _CLIENT  # connections cannot be shared with the parent
    _CLIENT = _Client()


os.register_at_fork(after_in_child=_forget)
