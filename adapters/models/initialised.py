"""Whether weights look as an initialiser left them: each element drawn for itself, which training undoes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from day0_worker.stack import StackError
from day0_worker.weights import read_tensor

from ..base.checkpoint import Checkpoint, fetch_tensors

_SAMPLED = 8
_SMALLEST = 16
_LARGEST_BYTES = 32 * 2**20
LIMIT = 3.0
"""Variance of the rows' (or columns') energies over what independent elements of the same kurtosis give.
Measured: 96 matrices of twelve freshly initialised tiny models 0.6 to 1.8, eight of SmolLM2-135M 10 to
186."""


def looks_initialised(checkpoint: Checkpoint) -> bool | None:
    """Whether at least half of some sampled matrices show no trace of training; None: none can be looked at.

    Reads at most eight matrices of at most 32 MiB each, the same ones for the same checkpoint.

    Raises:
        SourceError: they cannot be fetched.
    """
    scores = [unevenness(matrix) for matrix in _matrices(checkpoint)]
    found = sorted(score for score in scores if score == score)
    return found[len(found) // 2] < LIMIT if found else None


def unevenness(matrix: Tensor) -> float:
    """How much more rows or columns differ in energy than independent elements would make them.

    For n independent elements of kurtosis k the mean square of a row has the relative variance (k - 1) / n.

    Returns:
        The larger ratio of rows and columns; about 1 for independent elements; NaN for a constant matrix.
    """
    squares = matrix.to(torch.float64).square()
    energy = squares.mean()
    if not bool(torch.isfinite(energy)) or float(energy) == 0.0:
        return float("nan")
    spread = float(squares.square().mean() / energy.square()) - 1  # kurtosis - 1
    if spread <= 0.0:
        return float("nan")
    ratios = []
    for dim in (0, 1):
        lines = squares.mean(dim)
        ratios.append(float(lines.var() / energy.square()) * matrix.shape[dim] / spread)
    return max(ratios)


def _matrices(checkpoint: Checkpoint) -> Iterator[Tensor]:
    fit = [
        info
        for _, info in sorted(checkpoint.tensors.items())
        if len(info.shape) == 2 and min(info.shape) >= _SMALLEST and info.bytes <= _LARGEST_BYTES
        and info.dtype in ("bf16", "fp16", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2")
    ]  # fmt: skip
    chosen = fit[:: max(1, len(fit) // _SAMPLED)][:_SAMPLED]
    fetch_tensors(checkpoint, [info.name for info in chosen])
    for info in chosen:
        try:
            file = str(checkpoint.path(info.name))
            yield read_tensor(file, info.offset, info.dtype, list(info.shape)).to(torch.float64)
        except (StackError, OSError, ValueError):  # the comparison names what cannot be read
            continue
