"""Whether a target's outputs are what the reference says, output by output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from day0.adapters.base.dtypes import FROM_TORCH
from day0_worker.operators import resolve

from ..operator_reference import Reference, why_values_differ
from ..thresholds import OPERATOR_CONDITION, OPERATOR_TOLERANCE, OPERATOR_TOLERANCE_DEFAULT


@dataclass(frozen=True)
class Comparison:
    """The outcome of one comparison.

    Attributes:
        agrees: whether everything that could be compared agrees.
        error: largest deviation met, 0 where all is exact, None where no value was compared.
        tolerance: of the output with the largest error in proportion to it.
        reason: first disagreement, or what could not be compared; empty where all agrees.
    """

    agrees: bool
    error: float | None
    tolerance: float | None
    reason: str


def compare(op: str, outputs: Sequence[Any], reference: Reference) -> Comparison:
    """Holds a target's outputs against the reference.

    The error of an element is |got - ref| / (|ref| + s): s is the root mean square of the reference, since
    sums lose precision in proportion to their terms; for pointwise operators s is at most 1, so that a value
    that is wrong by a factor shows wherever it stands. Booleans and integers must be equal. Random operators
    and those that leave memory unwritten are held to shape, dtype and finiteness alone.
    """
    like = reference.values if reference.like is None else reference.like
    if len(outputs) != len(like):
        return Comparison(False, None, None, f"gives {len(outputs)} outputs where {len(like)} are due")
    exempt = why_values_differ(op)
    worst = Comparison(True, None, None, exempt)
    for place, (got, ref, form) in enumerate(zip(outputs, reference.values, like, strict=True)):
        found = _shape_fault(got, form, reference.like is not None)
        if found is None and not exempt:
            outcome = _compare_values(op, got, ref, form if reference.like is not None else None)
        else:
            outcome = Comparison(found is None, None, None, found or exempt)
        if not outcome.agrees:
            where = f"output {place}: " if len(like) > 1 else ""
            return Comparison(False, outcome.error, outcome.tolerance, where + outcome.reason)
        if _share(outcome) > _share(worst):
            worst = outcome
    return worst


def _share(outcome: Comparison) -> float:
    if outcome.error is None:
        return -1.0
    return outcome.error / outcome.tolerance if outcome.tolerance else 0.0


def _shape_fault(got: Any, form: Any, with_dtype: bool) -> str | None:
    if not isinstance(form, torch.Tensor):
        same = not isinstance(got, torch.Tensor) or got.numel() == 1
        return None if same else f"a tensor of shape {list(got.shape)} where a number is due"
    if not isinstance(got, torch.Tensor):
        return None if form.numel() == 1 else f"a number where shape {list(form.shape)} is due"
    if got.shape != form.shape:
        return f"shape {list(got.shape)} where {list(form.shape)} is due"
    if with_dtype and got.dtype != form.dtype:
        return f"dtype {got.dtype} where {form.dtype} is due".replace("torch.", "")
    return None


def _compare_values(op: str, got: Any, ref: Any, like: Any) -> Comparison:
    found, due = torch.as_tensor(got), torch.as_tensor(ref)
    if found.numel() == 0:
        return Comparison(True, 0.0, 0.0, "")
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        wrong = int((found != due.to(found.dtype)).sum())
        reason = f"{wrong} of {found.numel()} values differ" if wrong else ""
        return Comparison(not wrong, wrong / found.numel(), 0.0, reason)
    name = str(found.dtype).removeprefix("torch.")
    tolerance = OPERATOR_TOLERANCE.get(FROM_TORCH.get(name, name), OPERATOR_TOLERANCE_DEFAULT)
    wide = torch.complex128 if found.dtype.is_complex else torch.float64
    got, ref = found.to(wide), due.to(wide)
    if not _all_finite(got, ref, found.dtype):
        # What the reference becomes in the output's own dtype decides where infinities are due.
        rounded = due.to(found.dtype).to(wide)
        odd = _nonfinite_fault(got, rounded)
        if odd:
            return Comparison(False, None, tolerance, odd)
        finite = torch.isfinite(rounded)
        if not finite.any():
            return Comparison(True, 0.0, tolerance, "")
        got, ref = got[finite], ref[finite]
    error = _error(op, got, ref)
    if error > tolerance and like is not None:
        tolerance = _widened(op, tolerance, like, due)
    reason = f"error {error:.2g} against fp64, tolerance {tolerance:.2g}" if error > tolerance else ""
    return Comparison(error <= tolerance, error, tolerance, reason)


def _all_finite(got: torch.Tensor, ref: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether no infinity and no NaN is at hand or due: the extremes tell, NaN being one wherever it is."""
    if got.is_complex():
        return bool(torch.isfinite(got).all() and (ref.abs().max() < torch.finfo(dtype).max))
    ends = torch.stack([*got.aminmax(), *ref.aminmax()])
    return bool(torch.isfinite(ends).all() and ends[2:].abs().max() < torch.finfo(dtype).max)


def _widened(op: str, tolerance: float, like: Any, due: Any) -> float:
    """The tolerance where the inputs ask for more digits than the output's dtype has."""
    own = _compare_values(op, like, due, None)
    if own.error is None:
        return tolerance
    return min(max(tolerance, OPERATOR_CONDITION * own.error), OPERATOR_CONDITION * tolerance)


def _nonfinite_fault(got: torch.Tensor, ref: torch.Tensor) -> str:
    odd = torch.isfinite(got) != torch.isfinite(ref)
    odd |= torch.isnan(got) != torch.isnan(ref)
    if not got.is_complex():
        odd |= torch.isinf(ref) & (torch.sign(got) != torch.sign(ref))
    count = int(odd.sum())
    return (
        f"{count} of {got.numel()} values are NaN or infinite where they should not be, or the reverse"
        if count
        else ""
    )


def _error(op: str, got: torch.Tensor, ref: torch.Tensor) -> float:
    size = ref.abs()
    scale = float(size.square().mean().sqrt())
    if torch.Tag.pointwise in resolve(op).tags:
        scale = min(1.0, scale)
    deviation = (got - ref).abs()
    return float(deviation.div_(size.add_(scale)).max()) if scale else float(deviation.max())
