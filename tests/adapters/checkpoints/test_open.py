"""Which format a release is of, and that pickles stay closed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.sources.local import LocalSource


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("exploded"),)


def test_pickles_are_named_and_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        (tmp_path / f"pytorch_model-{number}-of-2.bin").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "training_args.bin").write_bytes(b"x")
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert checkpoint.format == "pickle"
    (anomaly,) = checkpoint.anomalies
    assert anomaly.code == "pickle_only"
    assert "2 pickles" in anomaly.message
    assert checkpoint.shards == ("pytorch_model-1-of-2.bin", "pytorch_model-2-of-2.bin")
    for ask in (checkpoint.read, checkpoint.path, checkpoint.identity):
        with pytest.raises(CheckpointError, match="E302"):
            ask("any")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["consolidated.00.pth", "model.pt", "x.ckpt"])
def test_every_kind_of_pickle_is_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert open_checkpoint(LocalSource(tmp_path)).format == "pickle"


def test_a_release_without_weights(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"x")
    checkpoint = open_checkpoint(LocalSource(tmp_path))
    assert checkpoint.format == "none"
    assert [anomaly.code for anomaly in checkpoint.anomalies] == ["no_weights"]
