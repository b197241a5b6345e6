"""The one catalogue of findings, one file a stage; docs/findings.md is generated from it."""

from __future__ import annotations

from .coverage import ENTRIES as _COVERAGE
from .entry import Entry
from .inventory import ENTRIES as _INVENTORY
from .inventory_quantization import ENTRIES as _INVENTORY_QUANTIZATION
from .inventory_structure import ENTRIES as _INVENTORY_STRUCTURE
from .inventory_table import ENTRIES as _INVENTORY_TABLE
from .inventory_weights import ENTRIES as _INVENTORY_WEIGHTS
from .minimal import ENTRIES as _MINIMAL
from .numerics import ENTRIES as _NUMERICS
from .plan import ENTRIES as _PLAN
from .prevented import ENTRIES as _PREVENTED
from .scale import ENTRIES as _SCALE

CATALOGUE: dict[str, Entry] = {
    entry.code: entry
    for entries in (
        _INVENTORY,
        _INVENTORY_WEIGHTS,
        _INVENTORY_QUANTIZATION,
        _INVENTORY_STRUCTURE,
        _INVENTORY_TABLE,
        _COVERAGE,
        _MINIMAL,
        _NUMERICS,
        _PLAN,
        _SCALE,
        _PREVENTED,
    )
    for entry in entries
}

__all__ = ["CATALOGUE", "Entry"]
