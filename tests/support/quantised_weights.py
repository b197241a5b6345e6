"""Random weights in each quantised format, with the numbers that they stand for, worked out in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

GROUP = 16
"""Columns that share a scale, where a format has groups of any size."""


class Quantised(NamedTuple):
    """One weight.

    Attributes:
        stored: what follows the module's name -> tensor.
        meant: fp32.
    """

    stored: dict[str, torch.Tensor]
    meant: torch.Tensor


def packed(numbers: np.ndarray, bits: int) -> torch.Tensor:
    """Unsigned numbers along the last dimension in int32 words, lowest bits first."""
    per_word = 32 // bits
    filled = np.zeros((*numbers.shape[:-1], -(-numbers.shape[-1] // per_word) * per_word), np.uint64)
    filled[..., : numbers.shape[-1]] = numbers
    places = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    words = (filled.reshape(*filled.shape[:-1], -1, per_word) << places).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def spread(grid: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Each entry repeated over a block of so many rows and columns."""
    return np.repeat(np.repeat(grid, rows, axis=-2), columns, axis=-1)


def _random(rows: int, columns: int) -> np.random.Generator:
    return np.random.default_rng(rows * 1000 + columns)


def _scales(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = _random(rows, columns).random((rows, columns)).astype(np.float32) * 0.02 + 0.001
    return torch.from_numpy(values).to(dtype)


def fp8(end: str, shape: Callable[[int, int], tuple[int, ...]]) -> Callable[[int, int], Quantised]:
    """fp8 with scales of that shape, which broadcasts, after that end of the weight's name."""

    def make(rows: int, columns: int) -> Quantised:
        weight = torch.from_numpy(_random(rows, columns).standard_normal((rows, columns))).to(
            torch.float8_e4m3fn
        )
        wanted = shape(rows, columns)
        scale = _scales(int(np.prod(wanted)), 1).reshape(wanted)
        wide = scale.reshape(-1, 1) if scale.dim() == 1 else scale
        stored = {"weight": weight, f"weight{end}": scale, "input_scale": torch.tensor(0.5)}
        return Quantised(stored, weight.float() * wide)

    return make


def fp8_blocks(rows: int, columns: int) -> Quantised:
    """DeepSeek's, in blocks of 8 x 16."""
    weight = torch.from_numpy(_random(rows, columns).standard_normal((rows, columns))).to(torch.float8_e4m3fn)
    scale = _scales(-(-rows // 8), -(-columns // 16))
    wide = spread(scale.numpy(), 8, 16)[:rows, :columns]
    return Quantised({"weight": weight, "weight_scale_inv": scale}, weight.float() * torch.from_numpy(wide))


def int8(rows: int, columns: int) -> Quantised:
    """compressed-tensors' int-quantized with a scale for each row."""
    weight = torch.from_numpy(_random(rows, columns).integers(-128, 128, (rows, columns)).astype(np.int8))
    scale = _scales(rows, 1, torch.bfloat16)
    return Quantised({"weight": weight, "weight_scale": scale}, weight.float() * scale.float())


def int4(symmetric: bool) -> Callable[[int, int], Quantised]:
    """compressed-tensors' pack-quantized, in groups."""

    def make(rows: int, columns: int) -> Quantised:
        random = _random(rows, columns)
        numbers, groups = random.integers(0, 16, (rows, columns)), columns // GROUP
        zero = random.integers(0, 16, (rows, groups))
        scale = _scales(rows, groups, torch.bfloat16)
        stored = {
            "weight_packed": packed(numbers, 4),
            "weight_scale": scale,
            "weight_shape": torch.tensor([rows, columns], dtype=torch.int32),
        }
        if not symmetric:
            stored["weight_zero_point"] = packed(zero.T, 4).t().contiguous()
        shift = spread(zero, 1, GROUP) if not symmetric else 8
        meant = (numbers - shift).astype(np.float32) * spread(scale.float().numpy(), 1, GROUP)
        return Quantised(stored, torch.from_numpy(meant))

    return make


def gptq(rows: int, columns: int) -> Quantised:
    """AutoGPTQ's first format, rows of a group in any order."""
    random = _random(rows, columns)
    numbers, groups = random.integers(0, 16, (columns, rows)), columns // GROUP
    zero, index = random.integers(1, 16, (groups, rows)), random.integers(0, groups, columns)
    scale = _scales(groups, rows, torch.float16)
    stored = {
        "qweight": packed(numbers.T, 4).t().contiguous(),
        "qzeros": packed(zero - 1, 4),
        "scales": scale,
        "g_idx": torch.from_numpy(index.astype(np.int32)),
    }
    meant = (numbers - zero[index]).astype(np.float32) * scale.float().numpy()[index]
    return Quantised(stored, torch.from_numpy(meant.T.copy()))


def awq(rows: int, columns: int) -> Quantised:
    """AutoAWQ's gemm."""
    random = _random(rows, columns)
    numbers, groups = random.integers(0, 16, (columns, rows)), columns // GROUP
    zero = random.integers(0, 16, (groups, rows))
    scale = _scales(groups, rows, torch.float16)

    def stored(values: np.ndarray) -> torch.Tensor:
        ordered = values.reshape(len(values), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return packed(ordered.reshape(len(values), -1), 4)

    index = np.arange(columns) // GROUP
    meant = (numbers - zero[index]).astype(np.float32) * scale.float().numpy()[index]
    tensors = {"qweight": stored(numbers), "qzeros": stored(zero), "scales": scale}
    return Quantised(tensors, torch.from_numpy(meant.T.copy()))


_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def mxfp4_numbers(octets: np.ndarray, exponents: np.ndarray) -> torch.Tensor:
    """Numbers [.., groups * 32] for blocks [.., groups, 16] and scales [.., groups]."""
    halves = np.stack([octets & 15, octets >> 4], -1).reshape(*octets.shape[:-1], 32)
    values = (
        np.where(halves & 8, -1.0, 1.0)
        * _E2M1[halves & 7]
        * 2.0 ** (exponents.astype(float)[..., None] - 127)
    )
    return torch.from_numpy(values.reshape(*octets.shape[:-2], -1).astype(np.float32))


def mxfp4_bytes(rows: int, columns: int) -> Quantised:
    """compressed-tensors' mxfp4-pack-quantized."""
    random = _random(rows, columns)
    octets = random.integers(0, 256, (rows, columns // 32, 16)).astype(np.uint8)
    exponents = random.integers(115, 125, (rows, columns // 32)).astype(np.uint8)
    stored = {
        "weight_packed": torch.from_numpy(octets.reshape(rows, -1)),
        "weight_scale": torch.from_numpy(exponents),
    }
    return Quantised(stored, mxfp4_numbers(octets, exponents))


def compressed(**weights: Any) -> dict[str, Any]:
    """The statement of compressed-tensors with one group of modules."""
    form = weights.pop("format")
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "input_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}
