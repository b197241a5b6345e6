"""An answer, or the lack of one, that is not what was asked for; what the server says about another try."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that pass by themselves
_LIMIT = re.compile(r'"[^"]*"\s*;\s*r=(?P<left>\d+)\s*;\s*t=(?P<seconds>\d+)')  # RateLimit, IETF draft


class HttpFailure(Exception):
    """A request that failed.

    Attributes:
        host: that failed to answer, `name:port`; after a redirect another one than was asked.
        status: of the answer; 0: none came, or not whole.
        headers: of the answer, names in lower case.
        refused: whether no connection came about at all.
        dropped: whether a kept connection turned out to be closed before anything was answered.
    """

    def __init__(
        self,
        reason: str,
        *,
        host: str = "",
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        refused: bool = False,
        dropped: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.host = host
        self.status = status
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.refused = refused
        self.dropped = dropped

    @property
    def passes(self) -> bool:
        """Whether another try may help."""
        return self.status in AGAIN or self.status == 0

    @property
    def hint(self) -> float | None:
        """Seconds that the server asks us to wait; None where it does not say.

        `RateLimit: "api";r=0;t=55` as the hub sends it, else `Retry-After` in seconds or as a date.
        """
        limit = _LIMIT.search(self.headers.get("ratelimit", ""))
        if self.status == 429 and limit and int(limit["left"]) == 0:
            return float(limit["seconds"]) + 1.0  # it counts whole seconds
        return self._retry_after()

    def _retry_after(self) -> float | None:
        text = self.headers.get("retry-after", "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
            return float(text)
        moment = _moment(text)
        if moment is None:
            return None
        server_now = _moment(self.headers.get("date", "")) or datetime.now(UTC)  # its clock may not be ours
        return max(0.0, (moment - server_now).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
