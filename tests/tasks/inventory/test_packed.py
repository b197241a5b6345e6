"""Logical counts of packed weights, each format by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from day0.tasks.inventory.declaration import make_part
from day0.tasks.inventory.stored_weights import StoredWeights
from day0.tasks.inventory.patterns import list_tensors
from support.layouts import make_tensor

Kind = tuple[str, Sequence[int]]
M = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("tensors", "bits", "logical"),
    [
        # compressed-tensors: eight int4 a word; three-bit weights by the ratio of bits, not by whole ones
        ({f"{M}.weight_packed": ("int32", (16, 8)), f"{M}.weight_scale": ("bf16", (16, 2))}, 4, 16 * 64),
        ({f"{M}.weight_packed": ("int32", (16, 6)), f"{M}.weight_scale": ("bf16", (16, 2))}, 3, 16 * 64),
        ({f"{M}.weight_packed": ("uint8", (16, 32)), f"{M}.weight_scale": ("fp8_e4m3", (16, 4))}, 4, 16 * 64),
        # gpt-oss: blocks of 16 bytes with one scale each
        ({f"{M}_blocks": ("uint8", (2, 8, 4, 16)), f"{M}_scales": ("uint8", (2, 8, 4))}, 4, 2 * 8 * 128),
        # fp4 in I8 with one E8M0 scale for 32 columns; int8 with a scale for each row is not packed
        ({f"{M}.weight": ("int8", (8, 32)), f"{M}.scale": ("e8m0", (8, 2))}, 0, 8 * 64),
        ({f"{M}.weight": ("int8", (8, 32)), f"{M}.weight_scale": ("fp32", (8, 1))}, 8, 8 * 32),
        # nvfp4 of modelopt: one FP8 scale for 16 columns
        ({f"{M}.weight": ("uint8", (8, 32)), f"{M}.weight_scale": ("fp8_e4m3", (8, 4))}, 4, 8 * 64),
        ({f"{M}.weight": ("uint8", (256, 1)), f"{M}.weight.absmax": ("fp32", (8,))}, 4, 512),
        ({f"{M}.qweight": ("int32", (8, 64)), f"{M}.scales": ("fp16", (2, 64))}, 4, 64 * 64),
        ({f"{M}.weight": ("uint32", (64, 8)), f"{M}.scales": ("bf16", (64, 1))}, 4, 64 * 64),
        ({f"{M}.weight": ("fp8_e4m3", (64, 8)), f"{M}.weight_scale_inv": ("fp32", (1, 1))}, 8, 64 * 8),
        ({f"{M}.weight": ("bf16", (64, 8))}, 0, 64 * 8),
    ],
)
def test_logical_count(tensors: dict[str, Kind], bits: int, logical: int) -> None:
    infos = {name: make_tensor(name, dtype, shape) for name, (dtype, shape) in tensors.items()}
    groups = list_tensors(infos).groups
    declared = make_part("int4_group", bits) if bits else None
    packing = StoredWeights(groups, lambda _: declared).packing(groups[0])
    assert (packing.logical(groups[0].elements) if packing else groups[0].elements) == logical
