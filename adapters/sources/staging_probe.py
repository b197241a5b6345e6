"""What the folder that files are staged in can do: shared caches and network file systems differ."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from day0.adapters.base.errors import SourceError

from .staging_claims import lock_byte

# File systems on which a lock may be granted to two machines at once, or not at all.
_NETWORK = ("nfs", "lustre", "gpfs", "cifs", "smb", "beegfs", "ceph", "glusterfs", "fuse", "9p", "afs",
            "ocfs2", "gfs2", "pvfs", "orangefs", "wekafs", "virtiofs", "vboxsf")  # fmt: skip


@dataclass(frozen=True)
class FolderAbilities:
    """What was tried in a folder.

    Attributes:
        hard_links: whether two names may share one file.
        symlinks: whether a name may lead to another.
        locks: whether a lock held once is refused to the next who asks, on this machine and any other.
    """

    hard_links: bool
    symlinks: bool
    locks: bool


@lru_cache(maxsize=64)
def probe_folder(folder: Path) -> FolderAbilities:
    """Tries in a folder, made where it is not there, what staging needs; once a process.

    Raises:
        SourceError: E212, no file can be written there or given another name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".day0-probe-", dir=folder) as made:
            return _try(Path(made))
    except OSError as error:
        raise unusable(folder, error) from error


def unusable(folder: Path, error: OSError) -> SourceError:
    """The error of a folder in which files cannot be staged."""
    return SourceError(
        f"files cannot be staged in {folder}: {error.strerror or error}",
        code="E212",
        remedy="Make the folder writable for this account, or choose another one: HF_HUB_CACHE for the hub, "
        "XDG_CACHE_HOME for other sources.",
    )


def free_bytes(folder: Path) -> int:
    """Bytes that this account may still write where the folder is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _try(folder: Path) -> FolderAbilities:
    first, second = folder / "first", folder / "second"
    first.write_bytes(b"probe")
    first.rename(second)
    return FolderAbilities(
        hard_links=_works(lambda: os.link(second, folder / "third")),
        symlinks=_works(lambda: os.symlink("second", folder / "fourth")),
        locks=not is_network(folder) and _keeps_locks(second),
    )


def _works(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _keeps_locks(path: Path) -> bool:
    """Whether the second of two descriptions of one file is refused the first one's lock."""
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    try:
        return lock_byte(one, 0) and not lock_byte(other, 0)
    except (OSError, AttributeError):  # no locks here, or a system without this kind of them
        return False
    finally:
        os.close(one)
        os.close(other)


def is_network(folder: Path, mounts: str | None = None) -> bool:
    """Whether the folder lies on a file system that several machines may share.

    Args:
        folder: an existing folder.
        mounts: text of /proc/self/mounts; read where left out.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:  # not Linux: locks are tried all the same
            return False
    place, best, kind = folder.resolve(), -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if len(point.parts) >= best and place.is_relative_to(point):
            best, kind = len(point.parts), fields[2]
    return kind.startswith(_NETWORK)
