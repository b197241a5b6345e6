from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch

from day0_worker import blobs, frames
from day0_worker.dtypes import torch_dtype


def reader(data: bytes) -> Callable[[int], bytearray]:
    source = io.BytesIO(data)

    def read(size: int) -> bytearray:
        piece = source.read(size)
        if len(piece) < size:
            raise EOFError
        return bytearray(piece)

    return read


def joined(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def test_a_frame_is_lengths_json_and_tensors() -> None:
    data = joined(frames.pack({"id": 1}, [b"ab", b"c"]))
    assert data == struct.pack(">Q", 8) + b'{"id":1}' + struct.pack(">Q", 3) + b"abc"
    assert frames.unpack(reader(data)) == ({"id": 1}, bytearray(b"abc"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack(">Q", 2**60), "limit"),
        (struct.pack(">Q", 4) + b"abcd", "not JSON"),
        (struct.pack(">Q", 2) + b"[]" + struct.pack(">Q", 0), "not an object"),
        (struct.pack(">Q", 2) + b"{}" + struct.pack(">Q", 2**63), "tensors"),
        (struct.pack(">Q", 200_000) + b"[" * 200_000, "not JSON"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, text: str) -> None:
    with pytest.raises(frames.FrameError, match=text):
        frames.unpack(reader(data))


def test_half_a_frame_is_the_end() -> None:
    with pytest.raises(EOFError):
        frames.unpack(reader(joined(frames.pack({"id": 1}, []))[:-1]))


def test_a_message_that_is_not_strict_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        frames.pack({"x": float("nan")}, [])


TENSORS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "scalar": torch.tensor(7),
    "empty": torch.empty(0, 5),
    "flags": torch.tensor([True, False, True]),
    "half": torch.tensor([1.5, -2.0]).bfloat16(),
    "eighth": torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
    "complex": torch.tensor([1 + 2j]),
    "odd": torch.arange(3, dtype=torch.uint8),
}


def test_tensors_come_back_as_they_went() -> None:
    back = blobs.load(bytearray(joined(blobs.dump(TENSORS))))
    assert set(back) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name].view(torch.uint8) if name == "eighth" else back[name],
                           tensor.view(torch.uint8) if name == "eighth" else tensor)  # fmt: skip


def test_the_blob_is_a_safetensors_file_both_ways() -> None:
    theirs = safetensors.torch.load(joined(blobs.dump(TENSORS)))
    assert torch.equal(theirs["transposed"], TENSORS["transposed"])
    assert theirs["half"].dtype is torch.bfloat16
    ours = blobs.load(bytearray(safetensors.torch.save({"a": torch.arange(5), "b": torch.ones(3).half()})))
    assert ours["a"].tolist() == [0, 1, 2, 3, 4]
    assert ours["b"].tolist() == [1, 1, 1]


def test_sending_copies_no_contiguous_tensor() -> None:
    tensor = torch.zeros(1000)
    parts = blobs.dump({"x": tensor})
    tensor[0] = 1
    assert blobs.load(bytearray(joined(parts)))["x"][0] == 1


def blob(header: Any, data: bytes = b"\0" * 16) -> bytearray:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return bytearray(len(text).to_bytes(8, "little") + text + data)


def entry(**changes: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | changes}


@pytest.mark.parametrize(
    "bad",
    [
        blob(entry(shape=[5])),
        blob(entry(shape=[-4])),
        blob(entry(shape=[2, -2])),
        blob(entry(data_offsets=[0, 32])),
        blob(entry(data_offsets=[16, 0])),
        blob(entry(data_offsets=[-16, 0])),
        blob(entry(dtype="F31")),
        blob(entry(shape=None)),
        blob({"x": 5}),
        blob([]),
        blob(b"{"),
        bytearray((2**62).to_bytes(8, "little") + b"{}"),
        bytearray(b"\x05"),
    ],
)
def test_a_lying_blob_is_refused(bad: bytearray) -> None:
    with pytest.raises(frames.FrameError):
        blobs.load(bad)


def test_unaligned_offsets_are_read() -> None:
    data = b"\0" + torch.tensor([1.0, 2.0]).numpy().tobytes()
    header = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}}
    assert blobs.load(blob(header, data))["x"].tolist() == [1.0, 2.0]


def test_every_dtype_that_crosses_has_a_torch_dtype() -> None:
    for short in blobs._NAMES:
        assert torch_dtype(short).itemsize >= 1
