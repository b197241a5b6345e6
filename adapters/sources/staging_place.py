"""Where staged files lie: the layout of the hub's cache, for every source.

    FOLDER/blobs/HASH                  whole files, verified
    FOLDER/snapshots/REVISION/PATH     links to them: what huggingface_hub and transformers find offline
    FOLDER/.day0-parts/HASH/data       a file not whole yet (holes where nothing has come), later a link
    FOLDER/.day0-parts/HASH/journal-*  which of its bytes are here
    FOLDER/.day0-parts/HASH/rejected   the last copy whose hash was wrong

Where another account's `.day0-parts` cannot be written, `.day0-parts-UID` takes its place.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import digest

from .paths import is_inside
from .staging_probe import probe_folder

PARTS = ".day0-parts"
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[\w.-]{1,128}", re.ASCII)


@dataclass(frozen=True)
class StagingPlace:
    """The folder of one model and the revision whose files are wanted.

    Attributes:
        folder: of the model, e.g. `models--org--name` in the hub's cache.
        revision: the pinned one.
    """

    folder: Path
    revision: str

    def snapshot(self, file: SourceFile) -> Path:
        """Where the whole file is found by its name.

        Raises:
            SourceError: E201, its path leaves the release.
        """
        if not is_inside(file.path) or not _COMMIT.fullmatch(self.revision) or self.revision in (".", ".."):
            raise SourceError(f"file {file.path!r} of revision {self.revision!r} has no place", code="E201")
        return self.folder / "snapshots" / self.revision / file.path

    def blob(self, file: SourceFile) -> Path:
        """Where the whole file is found by its hash."""
        return self.folder / "blobs" / _key(file)

    def parts(self, file: SourceFile) -> Path:
        """The folder in which it gathers."""
        shared = self.folder / PARTS
        usable = all(
            os.access(place, os.W_OK | os.X_OK) for place in (shared, shared / _key(file)) if place.exists()
        )
        return (shared if usable else self.folder / f"{PARTS}-{os.getuid()}") / _key(file)

    def whole(self, file: SourceFile) -> Path | None:
        """The file, if it is here and has the right length; linked where only its blob is here."""
        snapshot = self.snapshot(file)
        if _is_whole(snapshot, file.size):
            return snapshot
        if not _is_whole(self.blob(file), file.size):
            return None
        try:
            self._link(file)
        except (OSError, SourceError):  # a cache that others write and we only read
            return self.blob(file)
        return snapshot if _is_whole(snapshot, file.size) else self.blob(file)

    def settle(self, file: SourceFile, data: Path) -> Path:
        """Moves a verified file into its place in one step; `data` stays a name for it where links work."""
        blob, abilities = self.blob(file), probe_folder(self.folder)
        final = blob if abilities.symlinks else self.snapshot(file)
        final.parent.mkdir(parents=True, exist_ok=True)
        if abilities.hard_links:
            second = final.with_name(f"{final.name}.{uuid.uuid4().hex}")
            os.link(data, second)
            os.replace(second, final)
        else:
            os.replace(data, final)
        if abilities.symlinks:
            _replace_by_link(data, final)
            self._link(file)
        return self.snapshot(file)

    def _link(self, file: SourceFile) -> None:
        snapshot = self.snapshot(file)
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        if probe_folder(self.folder).symlinks:
            _replace_by_link(snapshot, self.blob(file))


def _key(file: SourceFile) -> str:
    """Stands for the content; another content of the same path has another one."""
    if file.sha256 is not None and _HASH.fullmatch(file.sha256):
        return file.sha256
    return file.identity if _HASH.fullmatch(file.identity) else digest([file.path, file.size, file.identity])


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


def _replace_by_link(name: Path, target: Path) -> None:
    """Lets a name lead to a file, by a relative path, whatever it was before."""
    made = name.with_name(f"{name.name[:100]}.{uuid.uuid4().hex}")
    os.symlink(os.path.relpath(target, name.parent), made)
    os.replace(made, name)
