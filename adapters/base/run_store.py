"""A folder tree for records, units, logs and reports, through fsspec; writes are atomic."""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fsspec

from .errors import InputError


class RunStore:
    """Files under one root, which is a folder or any fsspec URL (`s3://bucket/prefix`).

    A name is a relative path with forward slashes. A reader sees either the whole old or the whole new file.

    Args:
        root: folder or URL; made on first write.

    Raises:
        InputError: E120, no fsspec implementation serves the URL.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root)
        try:
            self._fs, self._base = fsspec.core.url_to_fs(self.root)
        except (ValueError, ImportError) as error:
            raise InputError(
                f"run store {self.root!r} cannot be opened: {error}",
                code="E120",
                remedy="Give a folder, or install the fsspec package for this kind of URL.",
            ) from error

    @property
    def is_local(self) -> bool:
        """Whether `path` of a name can be opened with plain `open`."""
        return "file" in _protocols(self._fs)

    def path(self, name: str) -> str:
        """The full path (local) or URL-less key of a name.

        Raises:
            ValueError: the name is absolute or climbs out of the root.
        """
        clean = posixpath.normpath(name)
        if clean.startswith(("/", "..")) or "\\" in name:
            raise ValueError(f"store name {name!r} leaves the store")
        return posixpath.join(self._base, clean)

    def exists(self, name: str) -> bool:
        """Whether the file or folder is there."""
        with self._reached():
            return bool(self._fs.exists(self.path(name)))

    def read(self, name: str) -> bytes:
        """The file's bytes.

        Raises:
            FileNotFoundError: there is none.
            InputError: E121, the store cannot be reached.
        """
        with self._reached():
            return bytes(self._fs.cat_file(self.path(name)))

    def write(self, name: str, data: bytes) -> str:
        """Writes the whole file at once and returns its path.

        Raises:
            InputError: E121, the store cannot be written.
        """
        target = self.path(name)
        try:
            with self._reached():
                self._put(target, data)
        except FileNotFoundError as error:
            raise self._unusable(error) from error
        return target

    def _put(self, target: str, data: bytes) -> None:
        if not self.is_local:
            self._fs.pipe_file(target, data)
            return
        os.makedirs(posixpath.dirname(target), exist_ok=True)
        partial = f"{target}.{uuid.uuid4().hex}.partial"
        try:
            with open(partial, "wb") as file:
                file.write(data)
            os.replace(partial, target)
        finally:
            if os.path.exists(partial):
                os.unlink(partial)

    def list(self, name: str) -> Sequence[str]:
        """Names of the entries directly below a folder, sorted; empty where there is none."""
        folder = self.path(name)
        with self._reached():
            if not self._fs.isdir(folder):
                return []
            self._fs.invalidate_cache()
            entries = [posixpath.basename(entry.rstrip("/")) for entry in self._fs.ls(folder, detail=False)]
        return sorted(entry for entry in entries if not entry.endswith(".partial"))

    def remove(self, name: str) -> None:
        """Deletes a file or a whole folder; nothing happens where there is none."""
        if self.exists(name):
            self._fs.rm(self.path(name), recursive=True)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Makes one sentence of a store that cannot be used; a missing file stays what it is."""
        try:
            yield
        except (FileNotFoundError, InputError):
            raise
        except OSError as error:
            raise self._unusable(error) from error
        except Exception as error:  # remote filesystems raise kinds of their own, such as missing credentials
            if self.is_local:
                raise
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return InputError(
            f"run store {self.root!r} cannot be used: {reason}",
            code="E121",
            remedy="Give a folder that can be written with --store, or credentials for its URL.",
        )


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
