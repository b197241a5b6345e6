"""Memory for tensors that follow one another, used again once nobody holds the tensor any more.

What a large tensor costs is mostly its fresh pages, which the kernel has to clear: four times the time of
filling memory that was used before, on the machine that this was measured on.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Sequence

import torch

_SMALL = 2**20  # bytes below which the allocator's own memory is used again anyhow
_SLACK = 2  # a buffer serves tensors down to this part of its size


class Buffers:
    """Hands out tensors; buffers that are free and no longer needed go, the oldest first.

    Args:
        spare: bytes of free buffers that may be kept.
    """

    def __init__(self, spare: int) -> None:
        self._spare = spare
        self._free: list[mmap.mmap] = []
        self._lock = threading.RLock()  # a tensor may end, and give back, in any line of `take`

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor whose values are whatever was there."""
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALL:
            return torch.empty(list(shape), dtype=dtype)
        buffer = self._fitting(size) or _fresh(size)
        view = memoryview(buffer)
        # The tensor holds the view as long as its storage lives, whoever holds that.
        weakref.finalize(view, self._give_back, buffer).atexit = False
        raw = torch.frombuffer(view, dtype=torch.uint8, count=size)
        return raw.view(dtype).reshape(list(shape))

    def clear(self) -> None:
        """Drops all free buffers."""
        with self._lock:
            self._free.clear()

    def _fitting(self, size: int) -> mmap.mmap | None:
        with self._lock:
            fits = [buffer for buffer in self._free if size <= len(buffer) <= size * _SLACK]
            found = min(fits, key=len, default=None)
            if found is not None:
                self._free.remove(found)
            return found

    def _give_back(self, buffer: mmap.mmap) -> None:
        with self._lock:
            self._free.append(buffer)
            while sum(map(len, self._free)) > self._spare:
                self._free.pop(0)


def _fresh(size: int) -> mmap.mmap:
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer
