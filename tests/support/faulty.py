"""The package of misbehaving stacks, installed for all tests of a session."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent / "faulty_vendor" / "day0_faulty"
_ENTRY_POINTS = """\
[day0.targets]
faulty = day0_faulty.stack:FaultyStack
faulty_import = day0_faulty.broken:BrokenStack
light = day0_faulty.light:LightStack
counted = day0_faulty.counted:CountedStack
askew = day0_faulty.askew:AskewStack
fallen = day0_faulty.falling_back:FallingStack
"""


@pytest.fixture(scope="session")
def faulty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder in which the stacks `faulty` and `faulty_import` are installed; it is on this `sys.path`.

    A test that starts Day0 in a process of its own gives it this folder as PYTHONPATH. Faults are chosen in
    the target: `faulty@cpu/fp32?fault=scale&layer=model.layers.1&factor=1.01`; see
    `faulty_vendor/day0_faulty/stack.py`.
    """
    folder = tmp_path_factory.mktemp("faulty")
    shutil.copytree(_SOURCE, folder / "day0_faulty", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = folder / "day0_faulty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: day0-faulty\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    importlib.invalidate_caches()
