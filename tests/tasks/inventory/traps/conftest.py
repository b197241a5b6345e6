"""What the traps share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.raw_checkpoints import Layout, write_sparse
from support.trap_quantisation import Take


@pytest.fixture
def take(tmp_path: Path) -> Take:
    """Writes a release to a folder and takes its inventory, the public way."""

    def make(config: Mapping[str, Any], layout: Layout, **files: Any) -> InventoryRecord:
        (tmp_path / "config.json").write_text(json.dumps(config))
        write_sparse(tmp_path / "model.safetensors", layout)
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return take_inventory(open_release(str(tmp_path)))

    return make
