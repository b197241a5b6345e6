"""What goes wrong between us and an object store, by any library; no secret is ever repeated."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from typing import Any

from day0.adapters.base.errors import AccessError, Day0Error, InputError, SourceError, UnansweredError

from .http_failure import AGAIN, HttpFailure

_BUSY = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling"})
_BUSY_NUMBERS = frozenset({errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)})  # as s3fs translates these
# Class names of botocore, aiohttp, urllib3 and the standard library, none of which need be installed.
_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})
_UNREACHED = frozenset({"EndpointConnectionError", "ClientConnectorError", "ConnectTimeoutError", "gaierror"})
_CUT = frozenset(
    {"HTTPClientError", "ClientError", "ClientPayloadError", "IncompleteRead", "ResponseStreamingError",
     "TimeoutError", "ConnectionError", "FSTimeoutError"}
)  # fmt: skip
_BAD_KEYS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})


def passing(error: BaseException, host: str) -> HttpFailure | None:
    """The error as a failed request, where another try may help.

    Args:
        error: of the store's library.
        host: under which threads wait together.
    """
    kinds, answer = _kinds(error), _answer(error)
    status, code, headers = answer.get("status", 0), answer.get("code", ""), answer.get("headers", {})
    number = error.errno if isinstance(error, OSError) else None
    if status in AGAIN or code in _BUSY or number in _BUSY_NUMBERS:
        return HttpFailure(
            f"the store answers {code or status}", host=host, status=status or 503, headers=headers
        )
    if answer or kinds & _CREDENTIALS or isinstance(error, FileNotFoundError | PermissionError):
        return None
    if kinds & _UNREACHED:
        return HttpFailure("no connection to the store", host=host, refused=True)
    return HttpFailure(f"the connection broke: {type(error).__name__}", host=host) if kinds & _CUT else None


def explain(error: BaseException, where: str, *, file: bool = False) -> Day0Error:
    """The error as a person should read it.

    Args:
        error: of the store's library, or the last failed request.
        where: what was asked for, as a URL without secrets.
        file: whether one listed file was asked for.
    """
    code = _answer(error).get("code", "")
    if _kinds(error) & _CREDENTIALS:
        return InputError(
            f"there are no credentials for {where}",
            code="E143",
            remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE; for another store "
            "what its library reads.",
        )
    if isinstance(error, HttpFailure):
        return _unreached(error, where, file)
    if code in _BAD_KEYS:
        return InputError(
            f"the store does not accept the credentials for {where}: {code}",
            code="E142",
            remedy="They are mistyped, expired or of another endpoint: check AWS_ACCESS_KEY_ID and the "
            "like, and AWS_ENDPOINT_URL.",
        )
    if isinstance(error, PermissionError):
        kind = AccessError if file else InputError
        return kind(
            f"these credentials may not {'read' if file else 'list'} {where}",
            code="E142",
            remedy="Grant them s3:ListBucket on the bucket and s3:GetObject on its objects, or use others.",
        )
    if isinstance(error, FileNotFoundError):
        return _missing(code, where, file)
    number = error.errno if isinstance(error, OSError) else None
    if code == "InvalidRange" or (file and number == errno.EINVAL):
        return SourceError(f"{where} is shorter than it was when it was listed", code="E202")
    reason = code or type(error).__name__
    return InputError(
        f"the store does not answer properly for {where}: {reason}",
        code="E144",
        remedy="Check the address, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION.",
    )


def _missing(code: str, where: str, file: bool) -> Day0Error:
    if file:
        return SourceError(f"{where} is listed, but no longer there", code="E201")
    if code == "NoSuchBucket":
        return InputError(
            f"there is no bucket for {where}", code="E141", remedy="Check its name and AWS_ENDPOINT_URL."
        )
    return InputError(f"there is nothing at {where}", code="E141", remedy="Check the address.")


def _unreached(failure: HttpFailure, where: str, file: bool) -> InputError:
    kind = UnansweredError if file and not failure.refused else InputError
    if failure.status:
        return kind(
            f"the store is too busy for {where}: {failure.reason}", code="E144", remedy="Wait and try again."
        )
    return kind(
        f"the store cannot be reached for {where}: {failure.reason}",
        code="E144",
        remedy="Check the network and AWS_ENDPOINT_URL.",
    )


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for each in _chain(error) for kind in type(each).__mro__}


def _answer(error: BaseException) -> Mapping[str, Any]:
    """Status, error code and headers of the store's own answer; empty where none came."""
    for each in _chain(error):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            said, meta = response.get("Error") or {}, response.get("ResponseMetadata") or {}
            return {
                "code": str(said.get("Code", "")),
                "status": int(meta.get("HTTPStatusCode", 0)),
                "headers": meta.get("HTTPHeaders") or {},
            }
    return {}


def _chain(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    for _ in range(10):
        if each is None:
            return
        yield each
        each = each.__cause__
