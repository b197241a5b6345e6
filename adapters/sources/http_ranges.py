"""Ranges of one file over HTTP: exact, resumed where a connection was cut, from servers of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from day0.adapters.base.errors import SourceError

from .http_client import Answer, Request, opened
from .http_failure import HttpFailure
from .retry import Tries

CHUNK = 256 * 2**10  # bytes handed on at once
MAX_SKIP = 2**20  # bytes read in vain from a server that ignores ranges before we give up on it
_GIVEN = re.compile(r"bytes (?P<start>\d{1,19})-(?P<last>\d{1,19})/(?P<size>\d{1,19}|\*)", re.ASCII)
_EXPIRED = frozenset({400, 401, 403, 404, 410})  # what a signed address answers when its time is over


class RemoteFile:
    """One file behind an address, of known length.

    Where the server sends us on to another host, the place found there is asked directly from then on.

    Args:
        request: its address.
        size: bytes, as listed.
        what: how errors name it.
    """

    def __init__(self, request: Request, size: int, what: str) -> None:
        self.size = size
        self.what = what
        self._request = request
        self._place: str | None = None

    def stream(self, start: int, stop: int, chunk: int = CHUNK) -> Iterator[bytes]:
        """The bytes `start` to `stop` in order, in chunks of at most `chunk` bytes.

        After a cut the next request begins at the first byte that is not here yet.

        Raises:
            HttpFailure: the server does not give them, after bounded tries.
            SourceError: E202 the file is shorter, E205 the server ignores ranges, E206 it has another file.
        """
        reached, tries = start, Tries(self.what)
        while reached < stop:
            begun = reached
            try:
                for part in self._attempt(reached, stop, chunk):
                    reached += len(part)
                    yield part
            except HttpFailure as failure:
                if self._place is not None and failure.status in _EXPIRED:
                    self._place = None
                    continue
                tries.again(failure, reached - begun)
            else:
                if reached < stop:
                    short = HttpFailure(f"{reached - begun} bytes came instead of {stop - begun}")
                    tries.again(short, reached - begun)

    def read(self, start: int, stop: int) -> bytes:
        """All bytes `start` to `stop` at once; see `stream`."""
        parts = list(self.stream(start, stop, max(CHUNK, min(stop - start, 4 * CHUNK))))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _attempt(self, start: int, stop: int, chunk: int) -> Iterator[bytes]:
        headers = {**self._request.headers, "Accept-Encoding": "identity"}
        if (start, stop) != (0, self.size):
            headers["Range"] = f"bytes={start}-{stop - 1}"
        request = replace(self._request, headers=headers)
        if self._place is not None:
            request = Request(self._place, headers)
        try:
            with opened(request) as answer:
                if urlsplit(answer.url).netloc != urlsplit(self._request.url).netloc:
                    self._place = answer.url
                skip = self._skip(answer, start, stop)
                yield from _take(answer, skip, stop - start, chunk)
        except HttpFailure as failure:
            if failure.status == 416:
                raise self._shorter(failure.headers, start) from failure
            raise

    def _skip(self, answer: Answer, start: int, stop: int) -> int:
        """Bytes of the answer before the ones asked for: none where the server honours the range."""
        said = answer.headers.get("content-range", "")
        if answer.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise self._ignored(answer, start, stop)
        if answer.status == 206:
            self._check_part(answer, said, start, stop)
            return 0
        if answer.status != 200 or start > MAX_SKIP:
            raise self._ignored(answer, start, stop)
        length = answer.headers.get("content-length", "")
        if length.isdecimal() and int(length) != self.size:
            raise self._other(f"has {int(length)} bytes")
        return start

    def _check_part(self, answer: Answer, said: str, start: int, stop: int) -> None:
        """Some mirrors leave Content-Range out; then the length alone must fit."""
        given = _GIVEN.fullmatch(said)
        length = answer.headers.get("content-length", "")
        if given is None:
            fits = not length.isdecimal() or int(length) <= stop - start
            if said or not fits or answer.headers.get("content-type", "").startswith("multipart/"):
                raise self._ignored(answer, start, stop)
            return
        if given["size"] != "*" and int(given["size"]) != self.size:
            raise self._other(f"has {given['size']} bytes")
        if int(given["start"]) != start or int(given["last"]) >= stop:
            raise self._ignored(answer, start, stop)

    def _ignored(self, answer: Answer, start: int, stop: int) -> SourceError:
        return SourceError(
            f"the server ignores ranges: bytes {start} to {stop - 1} of {self.what} were answered with "
            f"status {answer.status} and range {answer.headers.get('content-range', '')[:80]!r}",
            code="E205",
            remedy="Use another mirror, or download the model and give the folder.",
        )

    def _other(self, has: str) -> SourceError:
        return SourceError(
            f"{self.what} {has} on the server, but {self.size} by the listing",
            code="E206",
            remedy="Try again later, or use another mirror: this one serves another version.",
        )

    def _shorter(self, headers: Mapping[str, str], start: int) -> SourceError:
        said = headers.get("content-range", "").removeprefix("bytes */")
        ends = f"at byte {said}" if said.isdecimal() else "earlier"
        return SourceError(
            f"{self.what} ends {ends} on the server, before byte {start}; it has {self.size} by the listing",
            code="E202",
        )


def _take(answer: Answer, skip: int, length: int, chunk: int) -> Iterator[bytes]:
    """The bytes after `skip`; asks the connection for no byte more than needed."""
    while skip:
        passed = answer.read(min(skip, CHUNK))
        if not passed:
            return
        skip -= len(passed)
    while length:
        part = answer.read(min(length, chunk))
        if not part:
            return
        length -= len(part)
        yield part
