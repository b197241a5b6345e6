"""The files of one release that are, may be or are about to be on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import SourceFile

from .staging_file import PartFile, Stream
from .staging_place import StagingPlace


class Parts:
    """Gives each file of a pinned listing its place; no other path has one.

    Args:
        name: of the release, for messages.
        files: of the listing.
        place: where they belong.
        stream: gives ranges of a file, retrying by itself.
    """

    def __init__(self, name: str, files: Iterable[SourceFile], place: StagingPlace, stream: Stream) -> None:
        self.name, self.place = name, place
        self._files = {file.path: file for file in files}
        self._stream = stream
        self._parts: dict[str, PartFile] = {}
        self._lock = threading.Lock()

    def file(self, path: str) -> SourceFile:
        """The file as it is listed.

        Raises:
            SourceError: E201, the listing has no such file.
        """
        if path not in self._files:
            raise SourceError(f"there is no file {path} in {self.name} at {self.place.revision}", code="E201")
        return self._files[path]

    def whole(self, path: str) -> Path | None:
        """The file, where it is here completely."""
        return self.place.whole(self.file(path))

    def part(self, path: str) -> PartFile:
        """The file on its way.

        Raises:
            SourceError: E201; E212, nothing can be written there.
        """
        file = self.file(path)
        with self._lock:
            if path not in self._parts:
                self._parts[path] = PartFile(file, self.place, self._stream, self.name)
            return self._parts[path]
