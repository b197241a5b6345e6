"""How far one tensor is from the reference's: pure functions, sums in fp64 over chunks of tokens.

With target t and reference r, over all elements, over one token's or over one channel's (one place of the
last dimension, over all tokens):

- relative L2: ||t - r|| / ||r||
- cosine: <t, r> / (||t|| ||r||); centred: the same with each side's mean taken off first
- gain of a token: <t, r> / <r, r> - 1. Rounding scatters it around zero, a coherent error shifts its mean;
  relative L2 alone is blind to that (a block's output times 1.01 stays within four times the noise of bf16).
- ULP: see `day0.tasks.numerics.measures.ulps`.

A measure that does not apply (a reference of zeros, a constant tensor) is NaN, never a good value; one that
is impossible (a cosine above one) is an error of this tool and raised, never clamped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error

from .ulps import LargestUlps

_CHUNK_ELEMENTS = 1 << 18
"""2 MiB of fp64 each: what one chunk's sums pass over again and again stays in the processor's cache."""
_TINY = 1e-150
"""Norms below it underflow when squared in fp64; the tensor counts as zero."""
_CONSTANT = 1e-12
"""Share of the sum of squares below which the spread about the mean is the rounding of the sums
themselves."""
_BEYOND_ONE = 1e-9
"""By how much fp64 sums may push a cosine above one: they are relative to themselves exact to 1e-15 or so for
a thousand million elements added in blocks, and the means are taken off before they are added up."""
_MASKED = -3e4
"""What a mask adds where nothing may be seen: minus infinity or the lowest number of a dtype, which is
-65504 in fp16."""


class MetricError(Day0Error):
    """A measure came out as no measure can: a fault of the measuring, not of the target."""

    default_code = "E463"


@dataclass(frozen=True)
class Distance:
    """Distance of one output tensor from the reference's.

    Attributes:
        rel_l2: over all elements; NaN where the reference is zero.
        cosine: over all elements; NaN where either side is zero.
        centred_cosine: over all elements; NaN where either side is constant.
        max_abs: largest absolute difference; NaN where no element of the reference is finite.
        nonfinite: elements that are NaN or infinite although the reference's are finite.
        nan: those of them that are NaN.
        unknown: elements of the reference that are not finite; they are left out of everything else.
        scale: largest absolute value of the reference.
        errors: [tokens] relative L2 of each token, fp64; NaN where the reference's token is zero or left out.
        gains: [tokens] gain of each token, fp64; NaN likewise.
        spreads: [tokens] ||r||_4^2 / ||r||_2^2, fp64: rounding each element by a relative error of standard
            deviation s gives the token's gain the standard deviation s times this.
        norms: [tokens] ||r||, fp64; 0 where left out.
        differences: [tokens] ||t - r||, fp64; 0 where left out.
        counted: [tokens] which were measured.
        channels: [width] relative L2 of each channel over the measured tokens, fp64; NaN where it is zero.
        channel_norms: [width] ||r|| of each channel, fp64.
        ulp: 99.9 % quantile of the error in ULP; NaN where no element has a magnitude.
        masked: whether the reference holds nothing but zeros and numbers so low that they mask.
        misplaced: elements that mask on one side only; counted where `masked`.
    """

    rel_l2: float
    cosine: float
    centred_cosine: float
    max_abs: float
    nonfinite: int
    nan: int
    unknown: int
    scale: float
    errors: Tensor
    gains: Tensor
    spreads: Tensor
    norms: Tensor
    differences: Tensor
    counted: Tensor
    channels: Tensor
    channel_norms: Tensor
    ulp: float
    masked: bool
    misplaced: int

    @property
    def worst_token(self) -> float:
        """Largest relative L2 of a token; NaN where it applies to no token or some token is not finite."""
        return _worst(self.errors) if not self.nonfinite else math.nan

    @property
    def worst_channel(self) -> float:
        """Largest relative L2 of a channel; NaN where it applies to none or some element is not finite."""
        return _worst(self.channels) if not self.nonfinite else math.nan

    @property
    def tokens(self) -> int:
        """How many were measured."""
        return int(self.counted.sum())

    @property
    def width(self) -> int:
        """Elements of a token."""
        return self.channels.numel()

    @property
    def exact(self) -> bool:
        """Whether every element equals the reference's, which is finite throughout."""
        return self.max_abs == 0.0 and self.nonfinite == 0 and self.unknown == 0


def distance(
    target: Tensor, reference: Tensor, *, rows: Tensor | None = None, dtype: torch.dtype | None = None
) -> Distance:
    """Measures one tensor against the reference's, whose last dimension holds the elements of a token.

    Elements that are not finite in the reference itself are left out. Peak memory is a few chunks of fp64.

    Args:
        target: any floating dtype, same shape as the reference.
        reference: any floating dtype.
        rows: [tokens] bool, the tokens that count (padding does not); None: all.
        dtype: whose ULP are counted; None: the target tensor's own.

    Raises:
        ValueError: the shapes differ, or there are more or fewer rows than tokens.
        MetricError: E463, a measure is impossible.
    """
    if target.shape != reference.shape:
        raise ValueError(f"output has shape {list(target.shape)}, the reference has {list(reference.shape)}")
    width = reference.shape[-1] if reference.dim() else 1
    count = reference.numel() // width if width else 0
    if rows is not None and rows.numel() != count:
        raise ValueError(f"{rows.numel()} tokens are said to count or not, the output has {count}")
    counted = torch.ones(count).bool() if rows is None else rows.reshape(-1).bool().cpu()
    ulps = LargestUlps(dtype or target.dtype, int(counted.sum()) * width)
    so_far = _SoFar()
    parts = [_chunk(t, r, ulps, so_far) for t, r in _token_chunks(target, reference, counted)]
    masked = so_far.zero_or_mask and any(part.mask for part in parts)
    return _distance(parts, counted, width, ulps.quantile(), masked)


def headroom(largest: float, dtype: torch.dtype) -> float:
    """Largest magnitude over the largest number of the dtype: towards 1 an overflow is near.

    Args:
        largest: magnitude in the oracle, e.g. `Distance.scale`.
        dtype: of the target.
    """
    return largest / torch.finfo(dtype).max


def count_nonfinite(tensor: Tensor) -> int:
    """Number of elements that are NaN or infinite; 0 for integers."""
    if not tensor.is_floating_point():
        return 0
    flat = tensor.reshape(-1)
    count = 0
    for start in range(0, flat.numel(), _CHUNK_ELEMENTS):
        piece = flat[start : start + _CHUNK_ELEMENTS]
        # torch has no isfinite for the one-byte floats.
        piece = piece if piece.element_size() > 1 else piece.float()
        wide = torch.promote_types(piece.dtype, torch.float32)
        if not bool(torch.isfinite(piece.sum(dtype=wide))):  # of finite numbers it mostly is
            count += int((~torch.isfinite(piece)).sum())
    return count


def nonfinite_weights(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Parameters with NaN or infinity -> how many."""
    counts = {name: count_nonfinite(tensor) for name, tensor in weights.items()}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class _Chunk:
    sums: Tensor  # [tokens, 10], see `_sums`
    channels: Tensor  # [2, width]: sum over tokens of (t - r)^2 and of r^2
    max_abs: float
    nonfinite: int
    nan: int
    unknown: int
    scale: float
    mask: bool
    misplaced: int


@dataclass
class _SoFar:
    """What earlier chunks leave to later ones.

    Attributes:
        shift: taken off target and reference for the sums about the mean; the same in all chunks.
        zero_or_mask: whether the reference held nothing but zeros and masks.
    """

    shift: tuple[float, float] | None = None
    zero_or_mask: bool = True


_COLUMNS = 10


def _distance(parts: list[_Chunk], counted: Tensor, width: int, ulp: float, masked: bool) -> Distance:
    sums = torch.zeros(counted.numel(), _COLUMNS, dtype=torch.float64)
    channels = torch.zeros(2, width, dtype=torch.float64)
    if parts:
        sums[counted] = torch.cat([part.sums for part in parts])
        channels = torch.stack([part.channels for part in parts]).sum(0)
    dots, squares_t, squares_r, squares_d, fourths, a, b, aa, bb, ab = sums.unbind(1)
    count = max(1, int(counted.sum()) * width)
    norms, applies = squares_r.sqrt(), squares_r.sqrt() > _TINY
    nan = torch.full_like(norms, math.nan)
    mean_a, mean_b = a.sum() / count, b.sum() / count
    unknown = sum(part.unknown for part in parts)
    largest = max((part.max_abs for part in parts), default=0.0, key=_nan_last)
    return Distance(
        rel_l2=_ratio(squares_d.sum(), squares_r.sum()),
        cosine=_cosine("cosine", dots.sum(), squares_t.sum(), squares_r.sum()),
        centred_cosine=_cosine(
            "centred cosine",
            ab.sum() - count * mean_a * mean_b,
            _spread(aa.sum() - count * mean_a * mean_a, squares_t.sum()),
            _spread(bb.sum() - count * mean_b * mean_b, squares_r.sum()),
        ),
        max_abs=math.nan if unknown == count else largest,
        nonfinite=sum(part.nonfinite for part in parts),
        nan=sum(part.nan for part in parts),
        unknown=unknown,
        scale=max((part.scale for part in parts), default=0.0),
        errors=torch.where(applies, squares_d.sqrt() / norms, nan),
        gains=torch.where(applies, dots / squares_r - 1.0, nan),
        spreads=torch.where(applies, fourths.sqrt() / squares_r, nan),
        norms=norms,
        differences=squares_d.sqrt(),
        counted=counted,
        channels=torch.where(channels[1].sqrt() > _TINY, (channels[0] / channels[1]).sqrt(), math.nan),
        channel_norms=channels[1].sqrt(),
        ulp=ulp,
        masked=masked,
        misplaced=sum(part.misplaced for part in parts) if masked else 0,
    )


def _token_chunks(target: Tensor, reference: Tensor, counted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if not reference.numel():
        return
    width = reference.shape[-1] if reference.dim() else 1
    t, r = target.reshape(-1, width), reference.reshape(-1, width)
    rows = max(1, _CHUNK_ELEMENTS // width)
    everything = bool(counted.all())
    for start in range(0, r.shape[0], rows):
        part = slice(start, start + rows)
        if everything:
            yield t[part], r[part]
        elif bool(counted[part].any()):
            yield t[part][counted[part]], r[part][counted[part]]


def _chunk(target: Tensor, reference: Tensor, ulps: LargestUlps, so_far: _SoFar) -> _Chunk:
    """Sums of one chunk."""
    t, r = target.to(torch.float64), reference.to(torch.float64)
    mask, misplaced = _masking(t, r, so_far)
    nonfinite = nan = unknown = 0
    if not bool(torch.isfinite(t.sum()) & torch.isfinite(r.sum())):
        known = torch.isfinite(r)
        unknown = int((~known).sum())
        nonfinite, nan = int((known & ~torch.isfinite(t)).sum()), int((known & torch.isnan(t)).sum())
        t, r = torch.where(known, t, 0.0), torch.where(known, r, 0.0)
    if so_far.shift is None:
        so_far.shift = (_shift(t), _shift(r))
    d = t - r
    ulps.add(d, r)
    squares_d, squares_r = d * d, r * r
    return _Chunk(
        sums=_sums(t, r, squares_d, squares_r, so_far.shift),
        channels=torch.stack((squares_d.sum(0), squares_r.sum(0))),
        max_abs=_largest_magnitude(d),
        nonfinite=nonfinite,
        nan=nan,
        unknown=unknown,
        scale=_largest_magnitude(r),
        mask=mask,
        misplaced=misplaced,
    )


def _sums(t: Tensor, r: Tensor, squares_d: Tensor, squares_r: Tensor, shift: tuple[float, float]) -> Tensor:
    """[tokens, 10]: <t,r>, <t,t>, <r,r>, |t-r|^2, sum r^4; sum a, sum b, <a,a>, <b,b>, <a,b>.

    a and b are t and r less their shifts.
    """
    dot = torch.linalg.vecdot
    columns = [dot(t, r), dot(t, t), squares_r.sum(1), squares_d.sum(1), dot(squares_r, squares_r)]
    if shift == (0.0, 0.0):
        columns += [t.sum(1), r.sum(1), columns[1], columns[2], columns[0]]
    else:
        a, b = t - shift[0], r - shift[1]
        columns += [a.sum(1), b.sum(1), dot(a, a), dot(b, b), dot(a, b)]
    return torch.stack(columns, dim=1)


def _masking(t: Tensor, r: Tensor, so_far: _SoFar) -> tuple[bool, int]:
    """Whether there is a mask in the chunk, and how many elements mask on one side only."""
    if not so_far.zero_or_mask:
        return False, 0
    masks = r <= _MASKED
    so_far.zero_or_mask = bool((masks | (r == 0.0)).all())
    return bool(masks.any()), int((masks != (t <= _MASKED)).sum())


def _shift(values: Tensor) -> float:
    """What is taken off before sums about the mean are made: the mean, unless the spread hides it."""
    mean, square = float(values.mean()), float(values.square().mean())
    return mean if math.isfinite(square) and mean * mean > square / 4 else 0.0


def _largest_magnitude(values: Tensor) -> float:
    low, high = torch.aminmax(values)
    return max(abs(float(low)), abs(float(high)), key=_nan_last)


def _ratio(square_above: Tensor, square_below: Tensor) -> float:
    below, above = math.sqrt(float(square_below)), float(square_above)
    return (math.sqrt(above) if above >= 0 else math.nan) / below if below > _TINY else math.nan


def _spread(left: Tensor, square: Tensor) -> Tensor:
    """Sum of squares about the mean; zero where what is left is rounding of a constant tensor."""
    return left if not float(left) <= _CONSTANT * float(square) else torch.zeros_like(left)


def _cosine(name: str, dot: Tensor, square_t: Tensor, square_r: Tensor) -> float:
    below = math.sqrt(float(square_r)) * (math.sqrt(float(square_t)) if float(square_t) >= 0 else math.nan)
    value = float(dot) / below if below > _TINY else math.nan
    if abs(value) > 1 + _BEYOND_ONE:
        raise MetricError(
            f"the {name} of two tensors came to {value!r}, which no cosine can be",
            remedy="This is a fault of Day0, not of the target: please report it.",
        )
    return value


def _nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def _worst(values: Tensor) -> float:
    known = values[~torch.isnan(values)]
    return float(known.max()) if known.numel() else math.nan
