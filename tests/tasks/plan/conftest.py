"""The inventory of a large real release, taken once for all tests of the plan."""

from __future__ import annotations

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release


@pytest.fixture(scope="session")
def deepseek() -> InventoryRecord:
    return take_inventory(layout_release("deepseek-ai--DeepSeek-R1"))
