"""Logical counts of packed weights, each format by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from day0.tasks.inventory.declaration import make_part
from day0.tasks.inventory.patterns import list_tensors
from day0.tasks.inventory.stored_weights import StoredWeights
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


@pytest.mark.parametrize(
    ("stored", "declared", "bits", "doubt"),
    [
        ((3, 32), (4, 32), 3, "4 bits are declared, the shapes show 3"),
        ((4, 32), (4, 128), 4, "groups of 128 are declared, 4 bits each, the shapes show 32"),
        ((4, 32), (4, 64), 4, "groups of 64 are declared, 4 bits each, the shapes show 32"),
        ((6, 32), (0, 32), 6, ""),
        ((4, 32), (0, 0), 4, "4 bits assumed: neither shapes nor config say"),
        ((4, 32), (4, 0), 4, ""),
    ],
)
def test_bits_and_group_only_come_as_a_product(
    stored: tuple[int, int], declared: tuple[int, int], bits: int, doubt: str
) -> None:
    tensors = {
        f"{M}.weight_packed": ("int32", (16, 256 * stored[0] // 32)),
        f"{M}.weight_scale": ("bf16", (16, 256 // stored[1])),
    }
    infos = {name: make_tensor(name, dtype, shape) for name, (dtype, shape) in tensors.items()}
    groups = list_tensors(infos).groups
    found = StoredWeights(groups, lambda _: make_part("int4_group", *declared)).format(groups[0])
    assert found is not None
    assert (found.bits, found.doubt) == (bits, doubt)
