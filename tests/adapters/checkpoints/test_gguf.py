"""GGUF files, written by the gguf package and read through it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.gguf_header import GgufError, read_gguf_header
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.checkpoints.release import open_release
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


@pytest.mark.parametrize("keep", [0, 3, 24, 60, 110])
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


def test_a_file_without_all_of_its_data_is_known_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:-8])
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert [anomaly.code for anomaly in checkpoint.anomalies] == ["truncated_shard"]
    assert len(checkpoint.tensors) == 2


def test_only_the_header_is_read_and_agrees_with_the_library(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"word{number}" for number in range(30_000)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * 30_000)
    writer.add_name("some model")
    values = np.zeros((64, 65_536), dtype=np.float32)
    for number, kind in enumerate((GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q8_0)):
        writer.add_tensor(f"blk.{number}.ffn_up.weight", quantize_zeros(values.shape, kind), raw_dtype=kind)
    writer.add_tensor("plain.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    asked: list[tuple[int, int]] = []

    def read(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        with path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    header = read_gguf_header(read, path.stat().st_size)
    library = GGUFReader(path)
    assert header.values["general.name"] == "some model"
    assert header.values["tokenizer.ggml.tokens#length"] == 30_000
    assert header.length == library.data_offset
    assert {name: (kind.bytes, start) for name, (kind, start) in header.tensors.items()} == {
        tensor.name: (tensor.n_bytes, tensor.data_offset) for tensor in library.tensors
    }
    assert asked[-1][1] <= 2 * header.length


def quantize_zeros(shape: tuple[int, int], kind: GGMLQuantizationType) -> np.ndarray[Any, Any]:
    block, size = GGML_QUANT_SIZES[kind]
    return np.zeros((shape[0], shape[1] // block * size), dtype=np.uint8)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 120))
def test_no_header_ends_in_anything_but_a_reason(tail: bytes, keep: int) -> None:
    data = (b"GGUF" + bytes([3, 0, 0, 0]) + bytes([2] + [0] * 7) + bytes([1] + [0] * 7))[:keep] + tail
    with contextlib.suppress(GgufError):
        read_gguf_header(lambda start, stop: data[start:stop], len(data))


def test_a_release_without_a_config_is_known_by_its_header(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    for add, value in (
        (writer.add_block_count, 2), (writer.add_embedding_length, 64), (writer.add_head_count, 4),
        (writer.add_head_count_kv, 2), (writer.add_context_length, 512), (writer.add_rope_freq_base, 1e4),
        (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_feed_forward_length, 128),
    ):  # fmt: skip
        add(value)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add_tensor("token_embd.weight", np.zeros((3, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    release = open_release(str(tmp_path))
    assert release.config_file == "model.gguf"
    assert release.config == {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
        "max_position_embeddings": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": pytest.approx(1e-5), "rope_theta": 10000.0, "vocab_size": 3,
    }  # fmt: skip
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    assert open_release(str(tmp_path)).config == {"model_type": "llama", "hidden_size": 64}


def test_a_broken_file_without_a_config_is_still_a_release(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(2))
    release = open_release(str(tmp_path))
    assert release.config == {}
    assert [anomaly.code for anomaly in release.checkpoint.anomalies] == ["gguf_unreadable"]
