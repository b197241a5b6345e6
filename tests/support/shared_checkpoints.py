"""Checkpoints that many tests read and none changes, made once a session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.raw_checkpoints import write_release
from support.tiny_models import save_tiny

MakeFolder = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """Model type -> folder of a tiny random model of that type; read only."""
    return _once(tmp_path_factory.mktemp("tiny"), save_tiny)


@pytest.fixture
def tiny_copy(tiny_checkpoint: MakeFolder, tmp_path: Path) -> MakeFolder:
    """Model type -> a copy of that tiny model, for a test that damages it."""

    def copy(model_type: str) -> Path:
        return Path(shutil.copytree(tiny_checkpoint(model_type), tmp_path / f"tiny-{model_type}"))

    return copy


@pytest.fixture(scope="session")
def sparse_release(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """Name of a real release -> folder with its true headers, index and config, holes for data; read only."""
    return _once(tmp_path_factory.mktemp("releases"), lambda name, folder: write_release(folder, name))


def _once(root: Path, make: Callable[[str, Path], object]) -> MakeFolder:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            make(name, root / name)
            made[name] = root / name
        return made[name]

    return get
