"""Writing checkpoints, read back by the safetensors library and by Day0."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.checkpoints.writer import Tensor, write_checkpoint, write_whole
from day0.adapters.sources.local import LocalSource

KINDS = {"bf16": 2, "fp32": 4, "uint8": 1, "fp8_e4m3": 1}


def tensors(count: int = 12) -> Iterator[Tensor]:
    for number in range(count):
        dtype, width = list(KINDS.items())[number % 4]
        data = hashlib.shake_128(bytes([number])).digest(width * 3 * (number + 1))
        yield f"layers.{number}", dtype, (3, number + 1), data


@pytest.mark.parametrize("shards", [1, 2, 5, 12])
def test_what_is_written_is_read_back(tmp_path: Path, shards: int) -> None:
    paths = write_checkpoint(tmp_path / "new", tensors(), shards=shards, metadata={"made": "by hand"})
    checkpoint = open_checkpoint(LocalSource(tmp_path / "new"))
    assert checkpoint.anomalies == ()
    assert len(checkpoint.shards) == shards
    assert len(paths) == shards + (shards > 1)
    for name, dtype, shape, data in tensors():
        info = checkpoint.tensors[name]
        assert (info.dtype, tuple(info.shape)) == (dtype, tuple(shape))
        assert checkpoint.read(name) == data
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in paths}


def test_the_library_opens_every_shard(tmp_path: Path) -> None:
    paths = write_checkpoint(tmp_path, tensors(), shards=3)
    names = []
    for path in paths[:3]:
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}
            names += list(file.keys())
            for name in file.keys():  # noqa: SIM118  # not a dictionary: it cannot be iterated over
                file.get_tensor(name)
    assert sorted(names) == sorted(name for name, *_ in tensors())


def test_the_index_counts_tensor_bytes_and_shards_are_even(tmp_path: Path) -> None:
    same = [(f"t{number}", "uint8", (1000,), bytes(1000)) for number in range(10)]
    paths = write_checkpoint(tmp_path, same, shards=5)
    index = json.loads(paths[-1].read_text())
    assert index["metadata"]["total_size"] == 10_000
    assert len({path.stat().st_size for path in paths[:5]}) == 1
    assert list(index["weight_map"]) == sorted(index["weight_map"])


def test_tensors_are_aligned_to_their_elements(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, [("odd", "uint8", (3,), b"abc"), ("wide", "fp32", (1,), bytes(4))], shards=1)
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert checkpoint.tensors["wide"].offset % 4 == 0


def test_empty_tensors_and_scalars(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, [("none", "fp32", (0, 4), b""), ("one", "fp32", (), bytes(4))], shards=1)
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert checkpoint.read("none") == b""
    assert checkpoint.tensors["one"].elements == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [("a", "fp32", (2,), bytes(7))],
        [("a", "q4_1", (2,), bytes(8))],
        [("a", "uint8", (1,), b"x"), ("a", "uint8", (1,), b"x")],
        [],
    ],
)
def test_what_does_not_go_together_is_refused_and_leaves_nothing(tmp_path: Path, wrong: list[Tensor]) -> None:
    with pytest.raises(CheckpointError, match="E303"):
        write_checkpoint(tmp_path, wrong, shards=2)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_producer_leaves_nothing_behind(tmp_path: Path) -> None:
    def producer() -> Iterator[Tensor]:
        yield "a", "uint8", (1,), b"x"
        raise OSError("the source went away")

    with pytest.raises(OSError, match="went away"):
        write_checkpoint(tmp_path, producer(), shards=1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "x", b"old")

    def refuse(source: object, target: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_whole(tmp_path / "x", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]
