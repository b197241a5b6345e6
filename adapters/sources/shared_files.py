"""Files in a cache that several accounts may share: whoever may write the folder may write what is in it."""

from __future__ import annotations

import os
from pathlib import Path


def open_shared(path: Path, flags: int) -> int:
    """Opens a file; where this makes it, it may be read and written by those who may so the folder.

    Raises:
        OSError: as `os.open`.
    """
    is_new = not path.exists()
    handle = os.open(path, flags, 0o666)
    if is_new:
        _open_up(handle, path.parent.stat().st_mode & 0o666)
    return handle


def make_shared(folder: Path, above: Path) -> None:
    """Makes a folder, and those between it and `above`, with the mode of `above`.

    Raises:
        OSError: it cannot be made.
    """
    for place in reversed([folder, *folder.parents]):
        if place.is_relative_to(above) and not place.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            _open_up(place, above.stat().st_mode & 0o7777)


def _open_up(what: int | Path, mode: int) -> None:
    try:
        os.chmod(what, mode)
    except PermissionError:  # another process of another account made it first
        return
