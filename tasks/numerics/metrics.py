"""How far one tensor is from the reference's: pure functions, sums in fp64 over chunks of tokens.

With target t and reference r, over all elements or over one token's elements:

- relative L2: ||t - r|| / ||r||
- cosine: <t, r> / (||t|| ||r||); centred: the same with each side's mean taken off first
- gain of a token: <t, r> / <r, r> - 1. Rounding scatters it around zero, a coherent error shifts its mean;
  relative
  L2 alone is blind to that (a block's output times 1.01 stays within four times the noise of bf16).

A measure that does not apply (a reference of zeros, a constant tensor) is NaN, never a good value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK_ELEMENTS = 1 << 22
_TINY = 1e-150
"""Norms below it underflow when squared in fp64; the tensor counts as zero."""
_CONSTANT = 1e-12
"""Share of the sum of squares below which the spread about the mean is the rounding of the sums
themselves."""


@dataclass(frozen=True)
class Distance:
    """Distance of one output tensor from the reference's.

    Attributes:
        rel_l2: over all elements; NaN where the reference is zero.
        cosine: over all elements; NaN where either side is zero.
        centred_cosine: over all elements; NaN where either side is constant.
        max_abs: largest absolute difference.
        nonfinite: elements that are NaN or infinite although the reference's are finite.
        unknown: elements of the reference that are not finite; they are left out of everything else.
        scale: largest absolute value of the reference.
        errors: [tokens] relative L2 of each token, fp64; NaN where the reference's token is zero.
        gains: [tokens] gain of each token, fp64; NaN likewise.
        spreads: [tokens] ||r||_4^2 / ||r||_2^2, fp64: rounding each element by a relative error of standard
            deviation s gives the token's gain the standard deviation s times this.
    """

    rel_l2: float
    cosine: float
    centred_cosine: float
    max_abs: float
    nonfinite: int
    unknown: int
    scale: float
    errors: Tensor
    gains: Tensor
    spreads: Tensor

    @property
    def worst_token(self) -> float:
        """Largest relative L2 of a token; NaN where it applies to no token or some token is not finite."""
        return _worst(self.errors) if not self.nonfinite else math.nan

    @property
    def exact(self) -> bool:
        """Whether every element equals the reference's, which is finite throughout."""
        return self.max_abs == 0.0 and self.nonfinite == 0 and self.unknown == 0


def distance(target: Tensor, reference: Tensor) -> Distance:
    """Measures one tensor against the reference's, whose last dimension holds the elements of a token.

    Elements that are not finite in the reference itself are left out. Peak memory is a few chunks of fp64.

    Args:
        target: any floating dtype, same shape as the reference.
        reference: any floating dtype.

    Raises:
        ValueError: the shapes differ.
    """
    if target.shape != reference.shape:
        raise ValueError(f"output has shape {list(target.shape)}, the reference has {list(reference.shape)}")
    parts = [_chunk(t, r) for t, r in _token_chunks(target, reference)]
    tokens = torch.cat([part.sums for part in parts]) if parts else torch.zeros(0, 7, dtype=torch.float64)
    dots, squares_t, squares_r, squares_d, fourths, sums_t, sums_r = tokens.unbind(1)
    count = max(1, reference.numel())
    mean_t, mean_r = sums_t.sum() / count, sums_r.sum() / count
    norms = squares_r.sqrt()
    applies = norms > _TINY
    nan = torch.full_like(norms, math.nan)
    return Distance(
        rel_l2=_ratio(squares_d.sum(), squares_r.sum()),
        cosine=_cosine(dots.sum(), squares_t.sum(), squares_r.sum()),
        centred_cosine=_cosine(
            dots.sum() - count * mean_t * mean_r,
            _centred(squares_t.sum(), count * mean_t * mean_t),
            _centred(squares_r.sum(), count * mean_r * mean_r),
        ),
        max_abs=max((part.max_abs for part in parts), default=0.0, key=_nan_last),
        nonfinite=sum(part.nonfinite for part in parts),
        unknown=sum(part.unknown for part in parts),
        scale=max((part.scale for part in parts), default=0.0),
        errors=torch.where(applies, squares_d.sqrt() / norms, nan),
        gains=torch.where(applies, dots / squares_r - 1.0, nan),
        spreads=torch.where(applies, fourths.sqrt() / squares_r, nan),
    )


def count_nonfinite(tensor: Tensor) -> int:
    """Number of elements that are NaN or infinite; 0 for integers."""
    if not tensor.is_floating_point():
        return 0
    flat = tensor.reshape(-1)
    count = 0
    for start in range(0, flat.numel(), _CHUNK_ELEMENTS):
        piece = flat[start : start + _CHUNK_ELEMENTS]
        # torch has no isfinite for the one-byte floats.
        count += int((~torch.isfinite(piece if piece.element_size() > 1 else piece.float())).sum())
    return count


def nonfinite_weights(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Parameters with NaN or infinity -> how many."""
    counts = {name: count_nonfinite(tensor) for name, tensor in weights.items()}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class _Chunk:
    sums: Tensor  # [tokens, 7]: <t,r>, <t,t>, <r,r>, <t-r,t-r>, sum r^4, sum t, sum r
    max_abs: float
    nonfinite: int
    unknown: int
    scale: float


def _token_chunks(target: Tensor, reference: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    width = reference.shape[-1] if reference.dim() else 1
    if not reference.numel():
        return
    t, r = target.reshape(-1, width), reference.reshape(-1, width)
    rows = max(1, _CHUNK_ELEMENTS // width)
    for start in range(0, r.shape[0], rows):
        yield t[start : start + rows], r[start : start + rows]


def _chunk(target: Tensor, reference: Tensor) -> _Chunk:
    t, r = target.to(torch.float64), reference.to(torch.float64)
    total_t, total_r = t.sum(1), r.sum(1)
    nonfinite = unknown = 0
    if not bool(torch.isfinite(total_t).all() & torch.isfinite(total_r).all()):
        known = torch.isfinite(r)
        nonfinite, unknown = int((known & ~torch.isfinite(t)).sum()), int((~known).sum())
        t, r = torch.where(known, t, 0.0), torch.where(known, r, 0.0)
        total_t, total_r = t.sum(1), r.sum(1)
    d, squares, dot = t - r, r * r, torch.linalg.vecdot
    columns = (dot(t, r), dot(t, t), squares.sum(1), dot(d, d), dot(squares, squares), total_t, total_r)
    largest = torch.linalg.vector_norm
    sums = torch.stack(columns, dim=1)
    return _Chunk(sums, float(largest(d, math.inf)), nonfinite, unknown, float(largest(r, math.inf)))


def _ratio(square_above: Tensor, square_below: Tensor) -> float:
    below = math.sqrt(float(square_below))
    above = float(square_above)
    return (math.sqrt(above) if above >= 0 else math.nan) / below if below > _TINY else math.nan


def _centred(square: Tensor, square_of_mean: Tensor) -> Tensor:
    """Sum of squares about the mean; zero where what is left is rounding of a constant tensor."""
    left = square - square_of_mean
    return left if float(left) > _CONSTANT * float(square) else torch.zeros_like(left)


def _cosine(dot: Tensor, square_t: Tensor, square_r: Tensor) -> float:
    below = math.sqrt(float(square_r)) * (math.sqrt(float(square_t)) if float(square_t) >= 0 else math.nan)
    return float(dot) / below if below > _TINY else math.nan


def _nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def _worst(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return float(known.max()) if known.numel() else math.nan
