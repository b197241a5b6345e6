"""The table folds equal layers under exact index sets and loses nothing."""

from __future__ import annotations

from day0.tasks.inventory.table import inventory_lines, inventory_table
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, smollm2_tensors


def test_layers_of_gpt_oss_alternate() -> None:
    rows = inventory_table(take_inventory(layout_release("openai--gpt-oss-20b")))
    assert [(row.part, row.layers, row.number, row.kind) for row in rows] == [
        ("embedding", "", 1, ""),
        ("model.layers", "0-22:2", 12, "sliding moe"),
        ("model.layers", "1-23:2", 12, "full moe"),
        ("head", "", 1, ""),
        ("norm", "", 1, ""),
    ]


def test_table_adds_up_to_the_totals() -> None:
    record = take_inventory(layout_release("openai--gpt-oss-20b"))
    rows = inventory_table(record)
    assert sum(row.params * row.number for row in rows) == record.facts.totals.logical_params
    assert sum(row.bytes * row.number for row in rows) == record.facts.totals.data_bytes


def test_lines_for_a_person() -> None:
    lines = inventory_lines(take_inventory(make_release(SMOLLM2, smollm2_tensors())))
    assert "134,515,008 parameters" in "\n".join(lines)
    assert any(line.startswith("model.layers 0-29  x 30  full dense  3,540,096") for line in lines)


def test_bare_config_has_a_table_too() -> None:
    (row,) = inventory_table(take_inventory(make_release(SMOLLM2, {})))
    assert (row.layers, row.kv_bytes_per_token, row.params) == ("0-29", 768, 0)
