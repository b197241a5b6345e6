"""The two questions that the hub's API answers for us: which commit, and which files it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from day0.adapters.base.errors import InputError

from . import hub_settings
from .http_client import Request, opened
from .http_failure import HttpFailure
from .hub_errors import explained
from .retry import retrying

COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_FILES = 100_000  # more than any release holds
MAX_PAGES = 2_000
MAX_SIZE = 2**63  # bytes of a file; more is no size
MAX_ANSWER = 128 * 2**20  # bytes of one page; a thousand files take 300 KB
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


class Entry(NamedTuple):
    """One file of a commit as the hub lists it.

    Attributes:
        path: inside the repository, not yet judged.
        size: bytes of the file itself, also where the repository holds only a pointer to it.
        blob: git's hash of the file or, in large file storage, of its pointer.
        sha256: of the content where it lies in large file storage; else empty.
        xet: hash by which the hub's chunk storage knows it; empty where it lies elsewhere.
    """

    path: str
    size: int
    blob: str
    sha256: str = ""
    xet: str = ""


def file_request(model: str, commit: str, path: str) -> Request:
    """How one file of a commit is asked for."""
    url = f"{hub_settings.endpoint()}/{model}/resolve/{commit}/{quote(path)}"
    return Request(url, {"User-Agent": "day0"}, _credentials())


class RepositoryState(NamedTuple):
    """What the hub says of a repository at one revision.

    Attributes:
        commit: full hash.
        gated: whether its files are handed out only on request; None where it does not say.
    """

    commit: str
    gated: bool | None


def find_revision(model: str, revision: str | None, *, patient: bool = True) -> RepositoryState:
    """What a branch, a tag, a commit or the default branch stands for now; one request.

    Args:
        model: hub id.
        revision: None for the default branch.
        patient: whether to ask again where the hub has trouble.

    Raises:
        InputError: see `hub_errors.explain`.
    """
    what = f"model {model}" if revision is None else f"model {model} at {revision!r}"
    named = "" if revision is None else f"/revision/{quote(revision, safe='')}"
    info, _ = _asked(f"{hub_settings.endpoint()}/api/models/{model}{named}", what, patient=patient)
    sha = info.get("sha") if isinstance(info, dict) else None
    if not isinstance(sha, str) or not COMMIT.fullmatch(sha):
        raise InputError(f"the hub names no commit for {what}", code="E133", remedy="Check HF_ENDPOINT.")
    gated = info.get("gated")
    return RepositoryState(sha, bool(gated) if isinstance(gated, bool | str) else None)


def list_files(model: str, commit: str) -> Sequence[Entry]:
    """All files of a commit, page by page, sorted by path.

    Raises:
        InputError: E105 too many files, else see `hub_errors.explain`.
    """
    what = f"model {model} at {commit}"
    base = f"{hub_settings.endpoint()}/api/models/{model}/tree/{commit}"
    url: str | None = f"{base}?recursive=true&expand=false"
    found: dict[str, Entry] = {}
    for _ in range(MAX_PAGES):
        if url is None:
            return [found[path] for path in sorted(found)]
        page, link = _asked(url, what)
        for entry in _entries(page, what):
            found[entry.path] = entry
        if len(found) > MAX_FILES:
            break
        url = _next_page(link)
    raise InputError(
        f"{what} holds more than {MAX_FILES} files", code="E105", remedy="Give a repository of one model."
    )


def _asked(url: str, what: str, *, patient: bool = True) -> tuple[Any, str]:
    """The parsed answer and its `Link` header."""

    def ask() -> tuple[bytes, str]:
        request = Request(url, {"User-Agent": "day0", "Accept-Encoding": "gzip"}, _credentials())
        with opened(request) as answer:
            return answer.read_all(MAX_ANSWER), answer.headers.get("link", "")

    with explained(what):
        data, link = retrying(ask, what) if patient else ask()
        try:
            return json.loads(data), link
        except (ValueError, RecursionError) as error:
            raise HttpFailure("the answer is not JSON", status=200) from error


def _next_page(link: str) -> str | None:
    """The address of the next page, on the host that we were told to ask: a mirror may name another."""
    found = _NEXT.search(link)
    if found is None:
        return None
    ours = urlsplit(hub_settings.endpoint())
    named = urlsplit(found[1])
    path = named.path if named.path.startswith(ours.path) else ours.path + named.path
    return urlunsplit((ours.scheme, ours.netloc, path, named.query, ""))


def _entries(page: Any, what: str) -> list[Entry]:
    if not isinstance(page, list):
        raise InputError(
            f"the hub gives no list of files for {what}", code="E133", remedy="Check HF_ENDPOINT."
        )
    return [_entry(item) for item in page if _is_file(item)]


def _is_file(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.get("type", "file") == "file"
        and isinstance(item.get("path"), str)
        and type(item.get("size")) is int
        and 0 <= item["size"] < MAX_SIZE
    )


def _entry(item: Mapping[str, Any]) -> Entry:
    stored = item.get("lfs")
    lfs: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    sha256 = lfs.get("oid") or lfs.get("sha256") or ""
    size = lfs["size"] if type(lfs.get("size")) is int and 0 <= lfs["size"] < MAX_SIZE else item["size"]
    return Entry(
        path=item["path"],
        size=size,
        blob=_hash(item.get("oid"), COMMIT),
        sha256=_hash(sha256, _SHA256),
        xet=_hash(item.get("xetHash"), _SHA256),
    )


def _hash(value: Any, form: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and form.fullmatch(value) else ""


def _credentials() -> Mapping[str, str]:
    token = hub_settings.token()
    return {"Authorization": f"Bearer {token}"} if token else {}
