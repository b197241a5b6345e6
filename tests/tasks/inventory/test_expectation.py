"""What the model calls a weight that is stored in a packed form."""

from __future__ import annotations

import pytest

from day0.tasks.inventory.expectation import weight_name


@pytest.mark.parametrize(
    "last",
    ["weight", "weight_packed", "qweight", "W_q", "codes", "_weight_qdata", "weight_qdata", "B", "q_weight",
     "trellis", "weight_blocks", "weight._data", "weight._data._data"],
)  # fmt: skip
def test_the_name_of_a_packed_weight(last: str) -> None:
    assert weight_name(f"model.layers.0.mlp.up_proj.{last}") == "model.layers.0.mlp.up_proj.weight"


def test_other_names_stay() -> None:
    for name in ("model.layers.0.mlp.experts.gate_up_proj", "model.norm.bias", "B_proj.data", "weight"):
        assert weight_name(name) == name
    assert weight_name("experts.gate_up_proj_blocks") == "experts.gate_up_proj"
