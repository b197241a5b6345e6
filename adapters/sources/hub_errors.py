"""What may go wrong between us and the hub: what is worth another try, and what it means to a person."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import httpx2
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers

from day0.adapters.base.errors import Day0Error, InputError, SourceError

MAX_TRIES = 5
FIRST_WAIT = 0.5  # seconds; doubles with every try, so that five tries span about eight seconds
MAX_WAIT = 60.0  # seconds; a server that asks for more is reported instead of waited for
pause = time.sleep
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_LOGGER = logging.getLogger(__name__)

Result = TypeVar("Result")


class ShortReadError(Exception):
    """The connection ended before the promised bytes had come."""


TRANSPORT_ERRORS = (httpx2.TransportError, ShortReadError)


def retrying(call: Callable[[], Result], what: str) -> Result:
    """Calls until it works, a bounded number of times, waiting as long as the server asks for.

    Args:
        call: what to do.
        what: named in the log and in the error.

    Raises:
        Day0Error: what the last failure means to a person, see `explain`.
    """
    for attempt in range(1, MAX_TRIES + 1):
        try:
            return call()
        except (
            HfHubHTTPError,
            OfflineModeIsEnabled,
            HFValidationError,
            EntryNotFoundError,
            *TRANSPORT_ERRORS,
        ) as error:
            wait = _wait(error, attempt)
            if wait is None or attempt == MAX_TRIES:
                raise explain(error, what) from error
            _LOGGER.info("%s: %s; again in %.1f s (%d of %d)", what, _short(error), wait, attempt, MAX_TRIES)
            pause(wait)
    raise AssertionError("unreachable")


def _wait(error: Exception, attempt: int) -> float | None:
    """Seconds until another try; None where none will help or the server asks for too long a wait."""
    backoff = FIRST_WAIT * float(2 ** (attempt - 1))
    if isinstance(error, TRANSPORT_ERRORS):
        refused = isinstance(error, httpx2.ConnectError | httpx2.UnsupportedProtocol)
        return None if refused and attempt > 1 else backoff
    if not isinstance(error, HfHubHTTPError) or error.response.status_code not in _AGAIN:
        return None
    hint = _hint(error.response)
    if hint is None:
        return backoff
    return hint if hint <= MAX_WAIT else None


def _hint(response: httpx2.Response) -> float | None:
    limit = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and limit is not None and limit.remaining == 0:
        return float(int(limit.reset_in_seconds)) + 1.0  # the header counts whole seconds
    text = str(response.headers.get("Retry-After", ""))
    return float(text) if text.isdigit() else None


def explain(error: Exception, what: str) -> Day0Error:
    """The error as a person should read it; `InputError` where the model as named cannot be used at all.

    Args:
        error: from huggingface_hub or its HTTP client.
        what: what was asked for, e.g. `model org/name`.
    """
    if isinstance(error, GatedRepoError) or _status(error) == 403:
        return InputError(
            f"{what} is gated and this account has no access to it",
            code="E108",
            remedy="Accept its terms on the hub, then log in with `hf auth login` or set HF_TOKEN.",
        )
    if isinstance(error, RevisionNotFoundError):
        return InputError(
            f"{what} exists, but not in this revision",
            code="E131",
            remedy="Give a branch, a tag or a full commit hash that the repository has.",
        )
    if isinstance(error, RepositoryNotFoundError | DisabledRepoError) or _status(error) == 401:
        return InputError(
            f"{what} is not on the hub, or it is private and this account cannot see it",
            code="E107",
            remedy="Check the name; set HF_TOKEN for a private repository; a folder must exist.",
        )
    if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled):
        return InputError(
            f"{what} is not in the hub cache and HF_HUB_OFFLINE is set",
            code="E109",
            remedy="No folder of that name is here; unset HF_HUB_OFFLINE, or download the model first.",
        )
    if isinstance(error, EntryNotFoundError):
        return SourceError(f"{what} has no such file", code="E201")
    if isinstance(error, HFValidationError):
        return InputError(
            f"{what} is not a hub id", code="E104", remedy="Give org/name, or the path of an existing folder."
        )
    if isinstance(error, TRANSPORT_ERRORS):
        return InputError(
            f"the hub cannot be reached for {what}: {_short(error)}",
            code="E106",
            remedy="No folder of that name is here; check the network and HF_ENDPOINT, or set "
            "HF_HUB_OFFLINE=1 to use what is cached.",
        )
    return InputError(
        f"the hub does not answer properly for {what}: {_short(error)}",
        code="E133",
        remedy="Wait and try again.",
    )


def _status(error: Exception) -> int:
    return int(error.response.status_code) if isinstance(error, HfHubHTTPError) else 0


def _short(error: Exception) -> str:
    status = _status(error)
    if status:
        return f"status {status}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
