"""Expressions and shapes of weights whose stored tensors and statement agree; else the reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.checkpoint import TensorInfo
from .quantisation_statement import Statement, WeightStatement

Stored = Mapping[str, TensorInfo]
"""Use (`weight`, `scale`, `zero_point`, `groups`, `stored_shape`, `global`) -> the tensor."""
Form = tuple[dict[str, Any], list[int]]
"""The expression of the unquantised weight, and its shape."""

_EXPONENTS = ("uint8", "e8m0")
_SCALED_METHODS = ("fp8", "compressed-tensors", "fbgemm_fp8", "modelopt")


def blocks_form(stored: Stored, statement: Statement) -> Form | str:
    """gpt-oss's mxfp4: blocks [.., rows, groups, 16] and scales [.., rows, groups], for a turned weight."""
    weight, scale = stored["weight"], stored["scale"]
    shape = list(scale.shape)
    fits = list(weight.shape) == [*shape, 16] and len(shape) >= 2
    if statement.method != "mxfp4" or weight.dtype != "uint8" or scale.dtype != "uint8" or not fits:
        return _misfit(stored, statement.words)
    last = len(shape) - 1
    inner = {"dequantize": "mxfp4", **_leaves(stored, "weight", "scale")}
    return {"transpose": inner, "dims": [last - 1, last]}, [*shape[:-2], shape[-1] * 32, shape[-2]]


def packed_form(stored: Stored, weights: WeightStatement) -> Form | str:
    """compressed-tensors' `weight_packed`: integers in int32 words, or two E2M1 numbers a byte."""
    weight, scale = stored["weight"], stored.get("scale")
    words = f"compressed-tensors of {weights.bits} bits, {weights.kind or 'no type'}, {weights.strategy}"
    if scale is None or "global" in stored or "groups" in stored or len(weight.shape) < 2:
        return _misfit(stored, words)
    lead, groups = list(weight.shape[:-1]), scale.shape[-1] if scale.shape else 0
    if list(scale.shape[:-1]) != lead:
        return _misfit(stored, words)
    if weight.dtype in ("uint8", "int8"):
        return (
            _fp4(stored, lead, words)
            if weights.kind == "float" and weights.bits == 4
            else _misfit(stored, words)
        )
    bits = weights.bits
    if weight.dtype != "int32" or weights.kind != "int" or bits not in (2, 4, 8):
        return _misfit(stored, words)
    columns = _columns(weight.shape[-1], 32 // bits, groups, weights)
    if columns is None or ("zero_point" in stored) < (not weights.symmetric):
        return _misfit(stored, words)
    keys = {"bits": bits, "columns": columns, "group": weights.group if groups > 1 else columns}
    parts = _leaves(stored, "weight", "scale", "zero_point", "stored_shape")
    return {"dequantize": "int_packed", **keys, **parts}, [*lead, columns]


def _columns(words: int, per_word: int, groups: int, weights: WeightStatement) -> int | None:
    """Columns of a weight of so many words and scales a row; None where they contradict each other."""
    most = words * per_word
    if weights.strategy == "group" and weights.group:
        exact = groups * weights.group
        if most - per_word < exact <= most:
            return exact
        return most if -(-most // weights.group) == groups else None
    return most if weights.strategy == "channel" and groups == 1 else None


def scaled_form(stored: Stored, weights: WeightStatement, statement: Statement) -> Form | str:
    """One number an element beside scales of blocks, groups, rows, or one for all."""
    weight, scale = stored["weight"], stored["scale"]
    shape, words = list(weight.shape), f"{statement.words} with scales of blocks {weights.block}"
    method = statement.method in _SCALED_METHODS or scale.name == f"{weight.name}_scale_inv"
    if "global" in stored or len(shape) < 2 or not method:
        return _misfit(stored, words)
    if weight.dtype in ("int8", "uint8", "fp4_e2m1") and scale.dtype in _EXPONENTS:
        return _fp4(stored, shape[:-1], words)
    if not weight.dtype.startswith("fp8") and (weight.dtype, statement.method) != (
        "int8",
        "compressed-tensors",
    ):
        return _misfit(stored, words)
    block = _block(shape, list(scale.shape), weights)
    if block is None or scale.dtype == "uint8":
        return _misfit(stored, words)
    scheme = "int8_block" if weight.dtype == "int8" else "fp8_block"
    parts = _leaves(stored, "weight", "scale", "zero_point")
    return {"dequantize": scheme, "block": block, **parts}, shape


def _block(shape: list[int], scales: list[int], weights: WeightStatement) -> list[int] | None:
    """Rows and columns that share a scale; None where the scales do not suit the statement."""
    lead, (rows, columns) = shape[:-2], shape[-2:]
    block = weights.block or ((1, weights.group) if weights.strategy == "group" and weights.group else None)
    if block is not None:
        fits = scales == [*lead, -(-rows // block[0]), -(-columns // block[1])]
        return list(block) if fits else None
    if weights.strategy in ("block", "group"):
        return None
    if scales in ([], [1], lead, [*lead, 1, 1]):
        return [rows, columns]
    if scales in ([*lead, rows], [*lead, rows, 1]):
        return [1, columns]
    return [rows, 1] if scales == [*lead, 1, columns] else None


def _fp4(stored: Stored, lead: list[int], words: str) -> Form | str:
    """Two E2M1 numbers a byte with a power of two for each 32 of them."""
    weight, scale = stored["weight"], stored["scale"]
    width = weight.shape[-1] * 2
    fits = scale.dtype in _EXPONENTS and list(scale.shape) == [*lead, width // 32] and width % 32 == 0
    if not fits or "zero_point" in stored:
        return _misfit(stored, words)
    return {"dequantize": "mxfp4", **_leaves(stored, "weight", "scale")}, [*lead, width]


def gptq_form(stored: Stored, statement: Statement) -> Form | str:
    """`qweight`, `qzeros`, `scales`, maybe `g_idx`."""
    weights = statement.weights[0]
    if "scale" not in stored or "zero_point" not in stored or weights.bits not in (2, 4, 8):
        return _misfit(stored, statement.words)
    per_word = 32 // weights.bits
    words, scales, zeros = (list(stored[key].shape) for key in ("weight", "scale", "zero_point"))
    if len(words) != 2 or len(scales) != 2 or statement.format not in ("", "gptq", "gptq_v2"):
        return _misfit(stored, statement.words)
    rows, columns = words[0] * per_word, words[1]
    group = rows if weights.group == -1 else weights.group
    fits = group and scales == [-(-rows // group), columns] and zeros == [scales[0], -(-columns // per_word)]
    index = stored.get("groups")
    if not fits or not _all_int32(stored) or (index is not None and list(index.shape) != [rows]):
        return _misfit(stored, statement.words)
    keys = {"bits": weights.bits, "group": group, "plus_one": statement.format != "gptq_v2"}
    parts = _leaves(stored, "weight", "scale", "zero_point", "groups")
    return {"dequantize": "gptq", **keys, **parts}, [columns, rows]


def awq_form(stored: Stored, statement: Statement) -> Form | str:
    """`qweight`, `qzeros`, `scales` in the layout that AutoAWQ calls gemm."""
    weights = statement.weights[0]
    if "scale" not in stored or "zero_point" not in stored or weights.bits != 4:
        return _misfit(stored, statement.words)
    words, scales, zeros = (list(stored[key].shape) for key in ("weight", "scale", "zero_point"))
    if len(words) != 2 or len(scales) != 2 or statement.format not in ("", "gemm"):
        return _misfit(stored, statement.words)
    rows, columns = words[0], words[1] * 8
    group = rows if weights.group == -1 else weights.group
    fits = group and scales == [-(-rows // group), columns] and zeros == [scales[0], words[1]]
    if not fits or not _all_int32(stored) or "groups" in stored:
        return _misfit(stored, statement.words)
    parts = _leaves(stored, "weight", "scale", "zero_point")
    return {"dequantize": "awq", "group": group, **parts}, [columns, rows]


def _all_int32(stored: Stored) -> bool:
    return all(info.dtype == "int32" for key, info in stored.items() if key != "scale")


def _leaves(stored: Stored, *keys: str) -> dict[str, Any]:
    return {key: {"tensor": stored[key].name} for key in keys if key in stored}


def _misfit(stored: Stored, words: str) -> str:
    seen = ", ".join(f"{key} {info.dtype} {list(info.shape)}" for key, info in stored.items())
    return f"its tensors do not fit {words} and cannot be dequantised: {seen}"
