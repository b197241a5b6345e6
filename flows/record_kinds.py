"""Which type of record each stage makes."""

from __future__ import annotations

from day0.tasks.coverage.record import CoverageRecord
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.minimal.record import MinimalRecord
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.plan.record import PlanRecord
from day0.tasks.record import StageRecord
from day0.tasks.scale.record import ScaleRecord

RECORD_KINDS: dict[str, type[StageRecord]] = {
    "inventory": InventoryRecord,
    "coverage": CoverageRecord,
    "minimal": MinimalRecord,
    "numerics": NumericsRecord,
    "plan": PlanRecord,
    "scale": ScaleRecord,
}
