"""Short dtype names and torch's dtypes, on the worker's side of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_TORCH_NAMES = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "uint16": "uint16",
    "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64", "fp16": "float16",
    "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "complex64": "complex64",
    "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "e8m0": "float8_e8m0fnu", "fp4_e2m1": "float4_e2m1fn_x2",
}  # fmt: skip

SHORT_NAMES = {f"torch.{name}": short for short, name in _TORCH_NAMES.items()}


def torch_dtype(short: str) -> "torch.dtype":
    """The dtype of a short name.

    Raises:
        ValueError: the name is unknown, or this torch lacks the dtype.
    """
    import torch

    name = _TORCH_NAMES.get(short, "")
    found = getattr(torch, name, None) if name else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype {short!r} is not known to torch {torch.__version__}")
    return found


def short_dtype(dtype: "torch.dtype") -> str:
    """The short name of a dtype.

    Raises:
        ValueError: the dtype has no short name.
    """
    name = SHORT_NAMES.get(str(dtype))
    if name is None:
        raise ValueError(f"{dtype} has no short name")
    return name
