"""Dtype names (torch's short names) and their sizes; the same vocabulary in records, targets and reports."""

from __future__ import annotations

BITS: dict[str, int] = {
    "bool": 8, "uint8": 8, "int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32,
    "int64": 64, "uint64": 64, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64, "complex64": 64,
    "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_e4m3fnuz": 8, "fp8_e5m2fnuz": 8, "e8m0": 8,
    "fp6_e2m3": 6, "fp6_e3m2": 6, "fp4_e2m1": 4, "int4": 4,
}  # fmt: skip

FROM_SAFETENSORS: dict[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "fp16", "BF16": "bf16", "F32": "fp32",
    "F64": "fp64", "C64": "complex64", "F8_E4M3": "fp8_e4m3", "F8_E5M2": "fp8_e5m2",
    "F8_E4M3FNUZ": "fp8_e4m3fnuz", "F8_E5M2FNUZ": "fp8_e5m2fnuz", "F8_E8M0": "e8m0",
    "F6_E2M3": "fp6_e2m3", "F6_E3M2": "fp6_e3m2", "F4": "fp4_e2m1",
}  # fmt: skip

FROM_TORCH: dict[str, str] = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "uint16": "uint16",
    "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64", "float16": "fp16",
    "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "complex64": "complex64",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float8_e4m3fnuz": "fp8_e4m3fnuz",
    "float8_e5m2fnuz": "fp8_e5m2fnuz", "float8_e8m0fnu": "e8m0", "float4_e2m1fn_x2": "fp4_e2m1",
}  # fmt: skip

TO_TORCH: dict[str, str] = {short: name for name, short in FROM_TORCH.items()}


def num_bytes(dtype: str, elements: int) -> int:
    """Bytes that `elements` values of `dtype` take, rounded up to whole bytes.

    Raises:
        KeyError: `dtype` is not in the vocabulary.
    """
    return (BITS[dtype] * elements + 7) // 8
