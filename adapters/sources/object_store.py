"""A release in an object store: `s3://bucket/prefix`, or whatever else fsspec has a library for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from day0.adapters.base.errors import Day0Error, InputError, SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly, digest

from .changes import changed_files
from .http_failure import HttpFailure
from .object_errors import explain, passing
from .paths import is_inside
from .retry import gate_of, retrying
from .staging import Stager
from .staging_place import StagingPlace

MAX_FILES = 100_000  # more than any release holds; a whole bucket given by mistake ends here
CHUNK = 8 * 2**20  # bytes of one request of a stream
MAX_CONNECTIONS = 32
# What tells one version of an object from another, by the names that the libraries give it.
_IDENTITIES = (
    "VersionId", "ETag", "etag", "generation", "md5Hash", "content_md5", "checksum", "created", "mtime",
)  # fmt: skip
_S3 = ("s3", "s3a")
_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")  # of `values.digest`
_NOT_STORES = ("hf", "data", "reference", "generic", "http", "https")
Result = TypeVar("Result")


class ObjectSource:
    """The objects below one prefix. Any number of threads may read.

    Args:
        url: as a person named it; without credentials.
        store: fsspec's file system.
        root: the prefix as the file system names it.
    """

    def __init__(self, url: str, store: Any, root: str) -> None:
        self.name = url
        self._store = store
        self._root = root.rstrip("/")
        self._host = f"{urlsplit(url).scheme}:{self._root.partition('/')[0]}"
        left_out: list[Anomaly] = []
        self._files = {file.path: file for file in self._listing(left_out)}
        self.anomalies: Sequence[Anomaly] = tuple(left_out)
        self.revision = digest({path: file.identity for path, file in self._files.items()})
        if not self._files:
            raise InputError(f"there is nothing at {url}", code="E141", remedy="Check the address.")

    def files(self) -> Sequence[SourceFile]:
        """All objects as they were listed, sorted by path."""
        return tuple(self._files.values())

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` (exclusive) of one object.

        Raises:
            SourceError: E201 missing, E202 shorter than `start` or than it was listed.
            InputError: E142 access denied, E143 no credentials, E144 the store cannot be reached.
        """
        file = self._file(path)
        if start > file.size:
            raise SourceError(
                f"file {path} of {self.name} ends at byte {file.size}, before byte {start}", code="E202"
            )
        last = file.size if stop is None else min(stop, file.size)
        return b"" if last <= start else self._range(path, start, last)

    def stream(
        self, path: str, start: int = 0, stop: int | None = None, *, chunk: int = CHUNK
    ) -> Iterator[bytes]:
        """Bytes `start` to `stop` in order, `chunk` bytes with each request.

        Raises:
            SourceError: as for `read`.
            InputError: as for `read`.
        """
        size = self._file(path).size
        last = size if stop is None else min(stop, size)
        for begin in range(start, last, chunk):
            yield self._range(path, begin, min(begin + chunk, last))

    def local_path(self, path: str) -> Path:
        """The object on this machine, staged first where it is not there yet: resumable.

        Raises:
            SourceError: E201, there is no such object; what staging meets, see `Stager.ensure`.
        """
        return self.stager.ensure(self._file(path).path)

    @cached_property
    def stager(self) -> Stager:
        """Brings ranges and whole objects into `day0/objects` of the user's cache folder."""
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        place = StagingPlace(caches / "day0" / "objects" / digest(self.name)[:32], self.revision)
        return Stager(self.name, self.files(), place, self.stream)

    def moved(self) -> Anomaly | None:
        """Which objects came, went or changed since they were listed; None where all are as they were."""
        try:
            now = self._listing([], patient=False)
        except Day0Error:  # a remark is not worth the inventory
            return None
        return changed_files(self.name, "objects", self._files.values(), now)

    def _file(self, path: str) -> SourceFile:
        if path not in self._files:
            raise SourceError(f"there is no file {path} in {self.name}", code="E201")
        return self._files[path]

    def _range(self, path: str, start: int, stop: int) -> bytes:
        def fetch() -> bytes:
            data = bytes(self._store.cat_file(f"{self._root}/{path}", start=start, end=stop))
            if len(data) != stop - start:
                raise HttpFailure(f"{len(data)} bytes came instead of {stop - start}", host=self._host)
            return data

        return self._asked(fetch, f"{self.name}/{path}", file=True)

    def _listing(self, left_out: list[Anomaly], *, patient: bool = True) -> list[SourceFile]:
        find = partial(self._store.find, self._root, detail=True, withdirs=False)
        found = self._asked(find, self.name, patient=patient)
        if len(found) > MAX_FILES:
            raise InputError(
                f"{self.name} holds more than {MAX_FILES} objects",
                code="E105",
                remedy="Give the prefix below which the model's config.json lies.",
            )
        files = []
        for key in sorted(found):
            path, size = key.removeprefix(self._root).lstrip("/"), found[key].get("size")
            if key.endswith("/") or found[key].get("type") == "directory" or type(size) is not int:
                continue
            if is_inside(path):
                files.append(SourceFile(path=path, size=size, identity=_identity(found[key], size)))
            else:
                shown = ascii(path[:200])
                message = f"the store lists {shown}, which is no path below the prefix; it is left out"
                left_out.append(Anomaly(code="path_refused", subject=shown, message=message))
        return files

    def _asked(
        self, call: Callable[[], Result], where: str, *, file: bool = False, patient: bool = True
    ) -> Result:
        def attempt() -> Result:
            gate_of(self._host).wait()
            try:
                return call()
            except (HttpFailure, Day0Error):
                raise
            except Exception as error:  # whatever the store's library raises; told apart by what it says
                failure = passing(error, self._host)
                if failure is None:
                    raise explain(error, where, file=file) from error
                raise failure from error

        try:
            return retrying(attempt, where) if patient else attempt()
        except HttpFailure as failure:
            raise explain(failure, where, file=file) from failure


def _identity(info: Mapping[str, Any], size: int) -> str:
    said = [str(info[name]).strip('"') for name in _IDENTITIES if info.get(name) is not None]
    return ":".join([*said[:2], str(size)])


def open_source(model: str, revision: str | None = None) -> ObjectSource | None:
    """The release below that URL; None where it is no URL, or not of an object store.

    A revision can only be the digest by which a run has pinned the objects.

    Credentials and endpoint come from where the store's library looks for them, for S3 the `AWS_*`
    variables (AWS_ENDPOINT_URL for other servers than Amazon's) and its configuration files.

    Raises:
        InputError: E104 no usable address, E105 too many objects, E135 a revision is asked of a store, E140
            its library is not installed, E141 no such bucket or nothing there, E142 access denied, E143 no
            credentials, E144 unreachable, E145 credentials inside the URL, E146 a web address, E147 the
            objects are no longer those that a run has pinned.
    """
    scheme = urlsplit(model).scheme.lower() if "://" in model else ""
    if scheme in ("http", "https"):
        raise _web_address(model)
    if not scheme or scheme in _NOT_STORES or "::" in model:
        return None
    from fsspec.registry import known_implementations, registry

    if scheme not in known_implementations and scheme not in registry:
        return None
    if "@" in urlsplit(model).netloc:
        raise InputError(
            f"the {scheme}:// address holds credentials, which would end up in records and reports",
            code="E145",
            remedy="Leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE.",
        )
    if revision is not None and not _DIGEST.fullmatch(revision):
        raise InputError(
            f"{model} was given with the revision {revision!r}, but an object store has none",
            code="E135",
            remedy="Leave the revision out; the objects' own versions are recorded.",
        )
    store, root = _store_of(model, scheme)
    source = ObjectSource(model.rstrip("/"), store, root)
    if revision is not None and source.revision != revision:
        raise InputError(
            f"the objects at {model} are no longer those of {revision}; their digest is {source.revision}",
            code="E147",
            remedy="Start anew; everything must be read from one state.",
        )
    return source


def _store_of(url: str, scheme: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in _S3:  # all trying again is ours: bounded, and together where the store is busy
        once = {"mode": "standard", "total_max_attempts": 1}
        options["config_kwargs"] = {
            "max_pool_connections": MAX_CONNECTIONS,
            "retries": once,
            "connect_timeout": 10,
            "read_timeout": 30,
        }
        options["endpoint_url"] = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    try:
        store, root = url_to_fs(url, **options)
    except ImportError as error:
        extra = 'Install it with `pip install "day0[s3]"`.' if scheme in _S3 else f"Install it: {error}."
        raise InputError(
            f"the library that reads {scheme}:// is not installed", code="E140", remedy=extra
        ) from error
    except Exception as error:  # whatever a library makes of an address; one that it cannot use is no address
        raise InputError(
            f"{url} is no address that can be read: {type(error).__name__}",
            code="E104",
            remedy="Write it as s3://bucket/prefix, or as its library wants it.",
        ) from error
    if scheme in _S3:
        store.retries = 1
        if not root.strip("/"):
            raise InputError(f"{url} names no bucket", code="E104", remedy="Write it as s3://bucket/prefix.")
    return store, root


def _web_address(url: str) -> InputError:
    parts = urlsplit(url)
    if parts.hostname in ("huggingface.co", "hf.co"):
        model = "/".join(parts.path.strip("/").split("/")[:2])
        return InputError(f"{url} is a page of the hub", code="E146", remedy=f"Give the hub id, {model}.")
    return InputError(
        f"{parts.scheme}://{parts.hostname} cannot be read as a release: a web server lists no files",
        code="E146",
        remedy="Give a hub id (HF_ENDPOINT names a mirror), a folder, or an s3:// address.",
    )
