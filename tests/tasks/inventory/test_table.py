"""The table folds equal layers under exact index sets and loses nothing."""

from __future__ import annotations

import csv
import io

import pytest

from day0.tasks.inventory.distribution_csv import COLUMNS, distribution_csv
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.record_distribution import Distribution, Share
from day0.tasks.inventory.table import Fold, fold_layers
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, smollm2_tensors


@pytest.fixture(scope="module")
def gpt_oss() -> InventoryRecord:
    return take_inventory(layout_release("openai--gpt-oss-20b"))


def held(record: InventoryRecord) -> Distribution:
    assert record.facts.distribution is not None
    return record.facts.distribution


def folds(record: InventoryRecord) -> list[Fold]:
    return list(fold_layers(held(record)))


def test_layers_of_gpt_oss_alternate(gpt_oss: InventoryRecord) -> None:
    found = [(fold.path, fold.layers, fold.number, fold.rows[0].kind) for fold in folds(gpt_oss)]
    assert found == [
        ("model.embed_tokens", "", 1, ""),
        ("model.layers", "0-22:2", 12, "sliding"),
        ("model.layers", "1-23:2", 12, "full"),
        ("model.norm", "", 1, ""),
        ("lm_head", "", 1, ""),
    ]


def test_folded_table_adds_up_to_the_totals(gpt_oss: InventoryRecord) -> None:
    rows = [(fold.number, row) for fold in folds(gpt_oss) for row in fold.rows]
    assert sum(row.params * number for number, row in rows) == gpt_oss.facts.totals.logical_params
    assert sum(row.bytes * number for number, row in rows) == gpt_oss.facts.totals.data_bytes


def test_equal_layers_are_one_fold() -> None:
    found = folds(take_inventory(make_release(SMOLLM2, smollm2_tensors())))
    layers = next(fold for fold in found if fold.layers)
    assert (layers.place, layers.number) == ("model.layers 0-29", 30)
    assert {row.role: row.params for row in layers.rows} == {
        "norm": 2 * 576,
        "attention": 2 * 576 * 576 + 2 * 192 * 576,
        "dense_mlp": 3 * 1536 * 576,
    }


def test_bare_config_has_a_table_too() -> None:
    record = take_inventory(make_release(SMOLLM2, {}), expected=False)
    (fold,) = folds(record)
    assert held(record).basis == "config"
    assert [(row.role, row.kv_bytes_per_token, row.params) for row in fold.rows] == [
        ("attention", 768, 0),
        ("dense_mlp", 0, 0),
    ]


def test_csv_has_every_layer_and_role_with_exact_integers(gpt_oss: InventoryRecord) -> None:
    lines = list(csv.DictReader(io.StringIO(distribution_csv(held(gpt_oss)))))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == 24 * 4 + 3
    assert sum(int(line["params"]) for line in lines) == gpt_oss.facts.totals.logical_params
    assert sum(int(line["bytes"]) for line in lines) == gpt_oss.facts.totals.data_bytes
    expert = next(line for line in lines if line["role"] == "expert")
    assert (expert["name"], expert["index"], expert["ep"]) == ("model.layers.0", "0", "all-to-all all-to-all")
    assert expert["input"] == "[B*T*4, 2880]"


def test_csv_opens_safely_in_a_spreadsheet() -> None:
    names = ("=cmd|'/c calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", 'a"b,c\nd')
    rows = [
        Share(part="text", name=name, role="unknown", tensors=1, params=1, active_params=1, bytes=1)
        for name in names
    ]
    text = distribution_csv(Distribution(basis="tensors", rows=rows))
    cells = [line[1] for line in csv.reader(io.StringIO(text))][1:]
    assert len(text.splitlines()) == len(names) + 1
    assert all(cell[0] in "'a\N{REPLACEMENT CHARACTER}" for cell in cells)
    assert cells[0] == "'=cmd|'/c calc'!A0"
    assert cells[-1] == 'a"b,c\N{REPLACEMENT CHARACTER}d'
