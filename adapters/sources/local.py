"""A release in a folder on this machine."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from day0.adapters.base.errors import InputError, SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly, digest

from .changes import changed_files
from .paths import is_inside

MAX_FILES = 100_000  # more than any release holds; a home folder given by mistake ends here
MAX_DEPTH = 8  # releases are one or two folders deep
_SKIPPED_FOLDERS = re.compile(r"\.|__pycache__$")
_SNAPSHOT = re.compile(r"(?P<repo>.*/(?P<kind>models|datasets)--[^/]+)/snapshots/[0-9a-f]{40}")


class LocalSource:
    """The files below one folder. Hidden folders and links that leave the folder are left out.

    The snapshot folder of a hub cache consists of links into the cache's own blobs; these count as inside.

    Args:
        folder: an existing folder.
        name: how a person calls it; the absolute folder where left out.
        revision: the pinned commit where one is known; else a digest over the files' identities.
    """

    def __init__(self, folder: Path, *, name: str | None = None, revision: str | None = None) -> None:
        self.folder = folder.resolve()
        self.name = name or str(self.folder)
        self._roots = (self.folder, *_cache_roots(self.folder))
        left_out: list[Anomaly] = []
        self._files = {file.path: file for file in self._listing(left_out)}
        self.anomalies: Sequence[Anomaly] = tuple(sorted(left_out, key=lambda anomaly: anomaly.subject))
        self.revision = revision or digest({path: file.identity for path, file in self._files.items()})

    def files(self) -> Sequence[SourceFile]:
        """All files as they were when the source was opened, sorted by path."""
        return tuple(self._files.values())

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` (exclusive) of one file.

        Raises:
            SourceError: E201 missing, E202 shorter than `start`, E203 the system cannot read it.
        """
        place = self.local_path(path)
        try:
            with place.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if start > size:
                    raise SourceError(
                        f"file {path} of {self.name} ends at byte {size}, before byte {start}", code="E202"
                    )
                file.seek(start)
                return file.read() if stop is None else file.read(max(0, stop - start))
        except OSError as error:
            raise SourceError(
                f"file {path} of {self.name} cannot be read: {error.strerror or error}",
                code="E203",
                remedy="Check the file's permissions and the disk.",
            ) from error

    def local_path(self, path: str) -> Path:
        """The file itself.

        Raises:
            SourceError: E201, the folder has no such file.
        """
        if path not in self._files:
            raise SourceError(f"there is no file {path} in {self.name}", code="E201")
        return self.folder / path

    def moved(self) -> Anomaly | None:
        """Which files came, went or changed since they were listed; None where all are as they were."""
        try:
            now = self._listing([])
        except InputError:  # a remark is not worth the inventory
            return None
        return changed_files(self.name, "files", self._files.values(), now)

    def _listing(self, left_out: list[Anomaly]) -> list[SourceFile]:
        found = []
        for place, info in self._walk(self.folder, left_out):
            path = place.relative_to(self.folder).as_posix()
            if not is_inside(path):
                continue
            blob = _blob_name(place) if len(self._roots) > 1 else None
            identity = blob or f"{info.st_size}:{info.st_ino}:{info.st_mtime_ns}"
            sha256 = blob if blob is not None and len(blob) == 64 else None
            found.append(SourceFile(path=path, size=info.st_size, identity=identity, sha256=sha256))
            if len(found) > MAX_FILES:
                raise InputError(
                    f"folder {self.folder} holds more than {MAX_FILES} files",
                    code="E105",
                    remedy="Give the folder that holds the model's config.json.",
                )
        return sorted(found, key=lambda file: file.path)

    def _walk(
        self, folder: Path, left_out: list[Anomaly], depth: int = 0
    ) -> Iterator[tuple[Path, os.stat_result]]:
        for entry in self._entries(folder, left_out):
            place = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and not _SKIPPED_FOLDERS.match(entry.name):
                    yield from self._walk(place, left_out, depth + 1)
                continue
            if entry.is_symlink() and not self._stays(place):
                path = place.relative_to(self.folder).as_posix()
                left_out.append(
                    Anomaly(
                        code="link_leaves_release",
                        subject=path,
                        message=f"{path} is a link that leaves the folder or leads nowhere",
                        evidence=f"link to {os.readlink(place)}",
                    )
                )
                continue
            try:
                info = entry.stat()
            except OSError:  # gone since the folder was listed
                continue
            if stat.S_ISREG(info.st_mode):
                yield place, info

    def _entries(self, folder: Path, left_out: list[Anomaly]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if folder == self.folder:
                raise InputError(
                    f"folder {folder} cannot be listed: {error.strerror or error}",
                    code="E101",
                    remedy="Check its permissions.",
                ) from error
            path = folder.relative_to(self.folder).as_posix()
            message = f"folder {path} cannot be listed: {error.strerror or error}"
            left_out.append(Anomaly(code="folder_unreadable", subject=path, message=message))
            return []

    def _stays(self, link: Path) -> bool:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):
            return False
        return target.is_file() and any(target.is_relative_to(root) for root in self._roots)


def _cache_roots(folder: Path) -> tuple[Path, ...]:
    """The blob folders that a hub cache's snapshot folder links into."""
    match = _SNAPSHOT.fullmatch(folder.as_posix())
    if match is None:
        return ()
    repo = Path(match["repo"])
    return repo / "blobs", repo.parent / "blobs"


def _blob_name(place: Path) -> str | None:
    """The hash that names the blob: git's for a small file, SHA-256 for a large one."""
    if not place.is_symlink():
        return None
    name = Path(os.readlink(place)).name
    return name if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name) else None


def open_source(model: str, revision: str | None = None) -> LocalSource | None:
    """The folder of that name; None where the name is not one of a folder.

    Raises:
        InputError: E101 the name is a path and nothing is there, E104 it is a file, E135 a revision is asked
            of a folder.
    """
    place = existing_path(model)
    if place is not None and place.is_dir():
        if revision is not None:
            raise InputError(
                f"folder {model} was given with the revision {revision!r}, but a folder has none",
                code="E135",
                remedy="Leave the revision out.",
            )
        return LocalSource(place)
    if place is not None:
        raise InputError(
            f"{model} is a file, not a model folder",
            code="E104",
            remedy="Give the folder, a hub id, or the path of a config.json.",
        )
    if looks_like_path(model):
        raise InputError(
            f"there is no file or folder {model}",
            code="E101",
            remedy="Check the path, or give a hub id like org/name.",
        )
    return None


def existing_path(text: str) -> Path | None:
    """The file or folder of that name; None where there is none or where it cannot be a name at all."""
    try:
        place = Path(text).expanduser()
        return place if place.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte, an unknown home
        return None


def looks_like_path(model: str) -> bool:
    """Whether a person must have meant a path: it starts like one, or has too many parts for a hub id."""
    if "://" in model:
        return False
    return (
        model.startswith(("/", "./", "../", "~")) or model in (".", "..") or model.rstrip("/").count("/") > 1
    )
