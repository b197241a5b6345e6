"""The inventory of whole releases: the three real ones to the last parameter, small ones by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest
from day0.tasks.inventory.record import InventoryFacts, InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import RELEASES, layout_release, truth

_FILES_ONLY = ("header_bytes_total", "safetensors_file_bytes")


@pytest.fixture(scope="module")
def records() -> dict[str, InventoryRecord]:
    return {name: take_inventory(layout_release(name)) for name in RELEASES}


@pytest.mark.parametrize("name", RELEASES)
def test_totals_of_real_releases_are_exact(records: dict[str, InventoryRecord], name: str) -> None:
    expected = {key: value for key, value in truth(name).items() if key not in _FILES_ONLY}
    facts = records[name].facts.model_dump()

    def look_up(path: str) -> Any:
        value: Any = facts
        for part in path.split("."):
            value = value[part]
        return value

    assert {path: look_up(path) for path in expected} == expected
