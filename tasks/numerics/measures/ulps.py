"""Errors in units in the last place (ULP) of a dtype, at the reference's own magnitude.

The ULP at r is eps * 2^floor(log2 |r|), and below the dtype's smallest normal number, where numbers are
evenly spaced, eps times that. A reference of exactly zero has no magnitude and is left out: a difference from
it shows in every other measure. What is told is the 99.9 % quantile: single elements that nearly cancelled
are a thousand ULP off in any sound product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SHARE = 1e-3
_EXPONENT = 0x7F800000
"""Bits of a fp32 number's exponent: what they leave of |r| is 2^floor(log2 |r|)."""


class LargestUlps:
    """Keeps the largest errors over chunks, as many as the quantile needs.

    Args:
        dtype: whose ULP are counted.
        elements: how many will come at most.
    """

    def __init__(self, dtype: torch.dtype, elements: int) -> None:
        info = torch.finfo(dtype)
        self._eps, self._smallest = (
            float(info.eps),
            max(float(info.tiny), float(torch.finfo(torch.float32).tiny)),
        )
        self._room = int(_SHARE * elements) + 1
        self._largest = torch.zeros(0, dtype=torch.float32)
        self._count = 0

    def add(self, difference: Tensor, reference: Tensor) -> None:
        """One chunk.

        Args:
            difference: target less reference, fp64.
            reference: of the same shape, fp64.
        """
        bits = reference.float().view(torch.int32) & _EXPONENT
        ulps = difference.float().div_(bits.view(torch.float32).clamp_min_(self._smallest)).abs_()
        ulps = ulps.reshape(-1)
        zeros = reference.numel() - int(torch.count_nonzero(reference))
        self._count += ulps.numel() - zeros
        if zeros:
            ulps = ulps[(reference != 0).reshape(-1)]
        if self._largest.numel() == self._room:
            ulps = ulps[~(ulps <= self._largest[-1])]
        if ulps.numel():
            found = torch.cat((self._largest, ulps))
            self._largest = found.topk(min(self._room, found.numel())).values

    def quantile(self) -> float:
        """The 99.9 % quantile in ULP; NaN where no element has a magnitude or one in a thousand is NaN."""
        if not self._count:
            return math.nan
        above = int(_SHARE * self._count)
        return float(self._largest[min(above, self._largest.numel() - 1)]) / self._eps
