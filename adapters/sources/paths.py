"""Names of files inside a release: a stranger's, so they may not leave it."""

from __future__ import annotations

import posixpath

MAX_PATH_LENGTH = 1_024  # no real release comes near it; file systems end at 4,096


def is_inside(path: str) -> bool:
    """Whether a path is relative, in its plainest form with forward slashes, and stays inside the release."""
    if not path or len(path) > MAX_PATH_LENGTH or "\\" in path or any(ord(char) < 32 for char in path):
        return False
    drive = len(path) > 1 and path[1] == ":"
    return (
        not drive and posixpath.normpath(path) == path and not path.startswith(("/", "../")) and path != ".."
    )
