"""What the hub's refusals mean to a person, by its own words (`X-Error-Code`, `X-Error-Message`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from day0.adapters.base.errors import AccessError, Day0Error, InputError, SourceError, UnansweredError

from .http_client import host_of
from .http_failure import HttpFailure
from .hub_settings import endpoint

_TERMS = "Accept its terms on its page with the account of the token (`hf auth login` or HF_TOKEN)."
_LOG_IN = "Accept its terms on its page if you have not, and log in with `hf auth login` or set HF_TOKEN."


@contextmanager
def explained(what: str, *, file: bool = False) -> Iterator[None]:
    """Turns what the client met into an error for people, see `explain`."""
    try:
        yield
    except HttpFailure as failure:
        raise explain(failure, what, file=file) from failure


def explain(failure: HttpFailure, what: str, *, file: bool = False) -> Day0Error:
    """The failure as a person should read it; `InputError` where the model as named cannot be used at all.

    Args:
        failure: of the HTTP client.
        what: what was asked for, e.g. `model org/name`.
        file: whether one file of a known repository was asked for.
    """
    code, said = failure.headers.get("x-error-code", ""), failure.headers.get("x-error-message", "")[:300]
    if code == "GatedRepo":
        return _gated(failure, what)
    if failure.status == 403:
        return _forbidden(what, said)
    if code == "RevisionNotFound":
        return InputError(
            f"{what} exists, but not in this revision",
            code="E131",
            remedy="Give a branch, a tag or a full commit hash that the repository has.",
        )
    if said == "Access to this resource is disabled.":
        return InputError(
            f"{what} is there, but the hub has disabled access to it for everybody",
            code="E107",
            remedy="Look at its page on the hub for the reason.",
        )
    if failure.status == 401 and said.startswith("Invalid credentials"):
        return InputError(
            f"the hub does not accept the token that was sent for {what}",
            code="E115",
            remedy="It is mistyped, expired or revoked: log in again (`hf auth login`) or correct HF_TOKEN.",
        )
    if code == "EntryNotFound" or (file and failure.status == 404 and code != "RepoNotFound"):
        return SourceError(f"{what} is listed, but the hub does not have it", code="E201")
    if failure.status in (401, 404) or code == "RepoNotFound":
        return InputError(
            f"{what} is not on the hub, or it is private and this account cannot see it",
            code="E107",
            remedy="Check the name; set HF_TOKEN for a private repository; a folder must exist.",
        )
    if file and not failure.refused and failure.status != 429:  # a busy hub is so for every file
        return _unanswered(failure, what)
    return _unreached(failure, what) if failure.status == 0 else _unwell(failure, what)


def _unanswered(failure: HttpFailure, what: str) -> UnansweredError:
    return UnansweredError(
        f"the hub does not answer properly for {what}: {failure.reason}",
        code="E133" if failure.status else "E106",
        remedy="Wait and try again.",
    )


def _gated(failure: HttpFailure, what: str) -> AccessError:
    if failure.status == 401:
        return AccessError(f"{what} is gated and no token was sent", code="E108", remedy=_LOG_IN)
    message = f"{what} is gated and this account has no access to it yet"
    return AccessError(message, code="E108", remedy=_TERMS)


def _forbidden(what: str, said: str) -> AccessError:
    if "fine-grained" in said or "public gated repos" in said:
        return AccessError(
            f"{what} is gated and the fine-grained token in use may not read gated repositories",
            code="E114",
            remedy="Give the token the scope for gated repositories (`Read access to contents of all public "
            "gated repos you can access`) in the hub's settings, or use another token.",
        )
    reason = f": {said}" if said else ""
    return AccessError(f"the hub refuses this account access to {what}{reason}", code="E108", remedy=_TERMS)


def _unreached(failure: HttpFailure, what: str) -> InputError:
    host = failure.host
    if host and host != host_of(endpoint()):
        return InputError(
            f"the hub sends us to {host} for {what}, which cannot be reached: {failure.reason}",
            code="E106",
            remedy="Open the way to that host; a mirror that redirects there needs it as well.",
        )
    return InputError(
        f"the hub cannot be reached for {what}: {failure.reason}",
        code="E106",
        remedy="No folder of that name is here; check the network and HF_ENDPOINT, or set "
        "HF_HUB_OFFLINE=1 to use what is cached.",
    )


def _unwell(failure: HttpFailure, what: str) -> InputError:
    hint = failure.hint
    if failure.status == 429:
        asks = f" and asks to wait {hint:.0f} s" if hint is not None else ""
        return InputError(
            f"the hub has had too many requests from here, the last for {what}{asks}",
            code="E133",
            remedy="Wait that long, or log in: an account may ask more often than an anonymous caller.",
        )
    return InputError(
        f"the hub does not answer properly for {what}: {failure.reason}",
        code="E133",
        remedy="Wait and try again.",
    )
