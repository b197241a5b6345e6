"""Tensors in a file that this process fills and a worker maps: nothing is copied or sent."""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch

from day0_worker.dtypes import short_dtype

from ..base.errors import CheckpointError

_PREFIX = "day0-spool-"
_MEMORY = Path("/dev/shm")  # in memory on Linux; elsewhere there is none such
_SPARE = 64 * 2**20  # bytes left to others in a folder in memory
_ALIGNMENT = 64
_TRIES = 3  # a file that another run sweeps away before it is locked is made again
_NUMBERS = count()

Layout = Mapping[str, tuple[torch.dtype, Sequence[int]]]
"""Name -> dtype and shape."""


class Region:
    """Tensors of one file. It is locked while the region lives, which tells it from what a killed run left.

    Attributes:
        tensors: by name, to be filled here.
        leaves: by name, as a weight expression names them.
    """

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.tensors: Mapping[str, torch.Tensor] = {}
        self.leaves: Mapping[str, dict[str, Any]] = {}
        self._path, self._size = path, size
        self._map = mmap.mmap(descriptor, size)
        self._view: weakref.ref[memoryview] | None = None
        self._end = weakref.finalize(self, _remove, path, descriptor, os.getpid())

    @property
    def used(self) -> bool:
        """Whether a tensor that was placed into the file is still held by anyone in this process."""
        return self._view is not None and self._view() is not None

    def lay(self, layout: Layout) -> bool:
        """Places tensors into the file anew, over those that were there; False where they do not fit.

        A worker that has mapped the file then sees what is written, so its weights must be sent anew before
        it uses them again.
        """
        places, size = _placed(layout)
        if size > self._size:
            return False
        view = memoryview(self._map)
        self._view = weakref.ref(view)
        self.tensors = {name: _tensor(view, places[name], *what) for name, what in layout.items()}
        self.leaves = {
            name: {
                "file": str(self._path),
                "offset": places[name],
                "dtype": short_dtype(dtype),
                "shape": list(shape),
            }
            for name, (dtype, shape) in layout.items()
        }
        return True

    def clear(self) -> None:
        """Lets go of the tensors; the file stays for others."""
        self.tensors, self.leaves = {}, {}

    def close(self) -> None:
        """Removes the file; tensors of it that are still in use, here or in a worker, stay."""
        self.clear()
        self._end()


def _tensor(view: memoryview, offset: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    count = math.prod(shape) * dtype.itemsize
    if not count:
        return torch.empty(list(shape), dtype=dtype)
    raw = torch.frombuffer(view, dtype=torch.uint8, count=count, offset=offset)
    return raw.view(dtype).reshape(list(shape))


def open_region(layout: Layout, *, room: int = 0, folders: Sequence[Path] = ()) -> Region:
    """A file with room for these tensors, its bytes reserved: in memory where there is room, else on disk.

    Args:
        layout: of the tensors.
        room: bytes that it is to have at least, for layouts to come.
        folders: where to look for room; none: the folder in memory and that for temporary files.

    Raises:
        CheckpointError: E210, there is no room.
    """
    size = max(_placed(layout)[1], room, 1)
    for folder in folders or (_MEMORY, Path(tempfile.gettempdir())):
        sweep(folder)
        region = _in_folder(folder, size)
        if region is not None:
            region.lay(layout)
            return region
    raise CheckpointError(
        f"there is no room for {size:,} bytes of weights on their way to the target",
        code="E210",
        remedy="Free space in the folder for temporary files, or point TMPDIR to another.",
    )


def sweep(folder: Path) -> None:
    """Removes files of runs that were killed."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError), _opened(path) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _placed(layout: Layout) -> tuple[dict[str, int], int]:
    """Offset of each tensor and bytes of all."""
    places, end = {}, 0
    for name, (dtype, shape) in layout.items():
        places[name] = end
        end += -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    return places, end


def _in_folder(folder: Path, size: int) -> Region | None:
    """A region in that folder, or None where it cannot be made there."""
    try:
        state = os.statvfs(folder)
        if state.f_bavail * state.f_frsize < size + (_SPARE if folder == _MEMORY else 0):
            return None
        path, descriptor = _locked_file(folder)
    except OSError:
        return None
    try:
        # Reserved now: a write to a mapped page for which there is no room would kill the process.
        os.posix_fallocate(descriptor, 0, size)
        return Region(path, descriptor, size)
    except OSError:
        _remove(path, descriptor, os.getpid())
        return None


def _locked_file(folder: Path) -> tuple[Path, int]:
    for _ in range(_TRIES):
        path = folder / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        os.close(descriptor)
    raise OSError(f"files in {folder} are removed as they are made")


def _remove(path: Path, descriptor: int, process: int) -> None:
    if os.getpid() != process:
        return  # a forked child ends: the file is its parent's
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        os.close(descriptor)
