"""Tensors as the bytes of a safetensors file, without copies where the memory layout allows.

Written by hand because the safetensors package copies each tensor up to three times and refuses tensors
that share memory; what comes out is the same format and any safetensors reader takes it.
"""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple, Union

from day0_worker.dtypes import short_dtype, torch_dtype
from day0_worker.frames import FrameError

if TYPE_CHECKING:
    import torch

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "fp16": "F16", "bf16": "BF16", "fp32": "F32",
    "fp64": "F64", "complex64": "C64", "fp8_e4m3": "F8_E4M3", "fp8_e5m2": "F8_E5M2",
    "fp8_e4m3fnuz": "F8_E4M3FNUZ", "fp8_e5m2fnuz": "F8_E5M2FNUZ", "e8m0": "F8_E8M0",
}  # fmt: skip
_SHORT = {name: short for short, name in _NAMES.items()}
_MAX_HEADER_BYTES = 64 * 2**20


def dump(tensors: Mapping[str, "torch.Tensor"]) -> List[Union[bytes, memoryview]]:
    """The tensors as parts of one safetensors blob, the largest elements first so that all are aligned.

    The parts refer to the tensors' own memory: write them before the tensors change.

    Raises:
        ValueError: a dtype that cannot cross.
    """
    if not tensors:
        return []
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: Dict[str, Any] = {}
    parts: List[Union[bytes, memoryview]] = []
    place = 0
    for name in order:
        tensor = tensors[name].detach().cpu().contiguous()
        short = short_dtype(tensor.dtype)
        if short not in _NAMES:
            raise ValueError(f"tensor {name} of dtype {short} cannot cross between processes")
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[short],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
        if size:
            parts.append(bytes_of(tensor, size))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return [len(text).to_bytes(8, "little"), text, *parts]


def load(blob: bytearray) -> Dict[str, "torch.Tensor"]:
    """The tensors of a blob; they share its memory.

    Raises:
        FrameError: the blob is not a safetensors file, or an entry does not fit its bytes.
    """
    if not blob:
        return {}
    size = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or size > min(_MAX_HEADER_BYTES, len(blob) - 8):
        raise FrameError(f"the tensors' header claims {size} bytes of {len(blob)}")
    try:
        header = json.loads(blob[8 : 8 + size])
    except (ValueError, RecursionError):
        raise FrameError("the tensors' header is not JSON") from None
    if not isinstance(header, dict):
        raise FrameError("the tensors' header is not an object")
    return {
        name: _tensor(blob, 8 + size, name, entry) for name, entry in header.items() if name != "__metadata__"
    }


def bytes_of(tensor: "torch.Tensor", size: int) -> memoryview:
    """The first `size` bytes of a tensor on the CPU, without a copy."""
    raw = (ctypes.c_char * size).from_address(tensor.data_ptr())
    raw.owner = tensor  # type: ignore[attr-defined]  # keeps the memory alive as long as the view
    return memoryview(raw).cast("B")


def _tensor(blob: bytearray, base: int, name: str, entry: Any) -> "torch.Tensor":
    import torch

    dtype, shape, begin, end = _checked(blob, base, name, entry)
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    if (base + begin) % dtype.itemsize:
        piece = bytearray(blob[base + begin : base + end])
        return torch.frombuffer(piece, dtype=dtype).reshape(shape)
    count = (end - begin) // dtype.itemsize
    return torch.frombuffer(blob, dtype=dtype, count=count, offset=base + begin).reshape(shape)


def _checked(blob: bytearray, base: int, name: str, entry: Any) -> Tuple["torch.dtype", List[int], int, int]:
    try:
        dtype = torch_dtype(_SHORT[entry["dtype"]])
        shape = [int(dim) for dim in entry["shape"]]
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"tensor {name!r} is declared wrongly: {type(error).__name__} {error}") from None
    count = 1
    for dim in shape:
        count *= dim
    fits = min(shape, default=0) >= 0 and 0 <= begin <= end <= len(blob) - base
    if not fits or end - begin != count * dtype.itemsize:
        raise FrameError(f"tensor {name!r} of shape {shape} does not fit the bytes {begin} to {end}")
    return dtype, shape, begin, end
