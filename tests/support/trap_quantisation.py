"""Words that the traps of quantisation share: a declaration, and the findings they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord

Take = Callable[..., InventoryRecord]


def compressed(bits: int, group: int, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"],
        **more,
    }


MXFP4_GROUP = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}


def of(record: InventoryRecord, *codes: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code in codes]


QUANTISATION = tuple(f"INV0{number}" for number in (22, 23, 31, *range(50, 60)))
