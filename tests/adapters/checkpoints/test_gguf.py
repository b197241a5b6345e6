"""GGUF files, written by the gguf package and read through it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.sources.local import LocalSource


def write_gguf(path: Path) -> dict[str, bytes]:
    writer = GGUFWriter(path, "llama")
    values = np.arange(64 * 4, dtype=np.float32).reshape(4, 64)
    blocks = quantize(values, GGMLQuantizationType.Q8_0)
    writer.add_tensor("token_embd.weight", blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"token_embd.weight": blocks.tobytes(), "output_norm.weight": values[0].tobytes()}


def test_tensors_bear_block_types_and_logical_shapes(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "model-q8.gguf")
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert (checkpoint.format, list(checkpoint.anomalies)) == ("gguf", [])
    blocks, norm = checkpoint.tensors["token_embd.weight"], checkpoint.tensors["output_norm.weight"]
    assert (blocks.dtype, tuple(blocks.shape), blocks.bytes) == ("q8_0", (4, 64), 4 * 2 * 34)
    assert (norm.dtype, tuple(norm.shape), norm.bytes) == ("fp32", (64,), 256)
    assert {name: checkpoint.read(name) for name in checkpoint.tensors} == data
    assert checkpoint.header_bytes > 0


def test_safetensors_come_first_and_other_sets_are_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf")
    (anomaly,) = open_checkpoint(LocalSource(tmp_path)).anomalies
    assert (anomaly.code, anomaly.subject) == ("other_weights", "b")


@pytest.mark.parametrize("keep", [0, 3, 24, 60, 130])
def test_a_cut_file_is_named_and_never_a_traceback(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:keep])
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert [anomaly.code for anomaly in checkpoint.anomalies] == ["gguf_unreadable"]
    assert not checkpoint.tensors


def test_a_file_that_shrinks_later_is_noticed_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    path.write_bytes(path.read_bytes()[: checkpoint.tensors["output_norm.weight"].offset + 8])
    with pytest.raises(CheckpointError, match="E301"):
        checkpoint.read("output_norm.weight")
