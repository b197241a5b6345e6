"""One verdict a tensor: folded, whatever their number; each kind of fault a finding a pattern."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.checkpoint import IndexSummary, TensorFault
from day0.adapters.checkpoints.release import open_release
from day0.tasks.inventory.reconciliation import MAX_FINDINGS, MAX_ROWS, VERDICTS
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.raw_checkpoints import write_index, write_sharded
from support.small_releases import MIXTRAL, mixtral_tensors


def taken(faults: list[TensorFault], **more: Any) -> InventoryRecord:
    return take_inventory(make_release(MIXTRAL, mixtral_tensors(), faults=faults, **more))


def test_two_hundred_thousand_tensors_at_fault_are_few_rows_and_findings() -> None:
    faults = [
        TensorFault(f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight", "missing_shard", f"s{layer}")
        for layer in range(200)
        for expert in range(334)
        for part in ("w1", "w2", "w3")
    ]
    faults += [TensorFault(fault.name, "wrong_shard", "t") for fault in faults[:100_000]]
    began = time.process_time()
    record = taken(faults)
    assert time.process_time() - began < 20
    found = record.facts.reconciliation
    assert [(row.verdict, row.layers, row.experts, row.tensors) for row in found.exceptions[:3]] == [
        ("missing_shard", "0-199", "0-333", 66_800)
    ] * 3
    assert all(len(row.files) == 20 and row.more_files == 180 for row in found.exceptions[:3])
    assert found.faulty == 200_400
    assert found.consistent == 41
    assert len([finding for finding in record.findings if finding.code == "INV012"]) <= 3
    assert len(record.model_dump_json()) < 1_000_000


def test_patterns_without_number_are_bounded() -> None:
    record = taken([TensorFault(f"n{''.join(chr(97 + int(d)) for d in str(i))}", "header_only", "f")
                    for i in range(5_000)])  # fmt: skip
    rows = record.facts.reconciliation.exceptions
    assert len(rows) == MAX_ROWS + 1
    assert sum(row.tensors for row in rows) == 5_000
    findings = [finding for finding in record.findings if finding.code == "INV012"]
    assert len(findings) == MAX_FINDINGS + 1


@pytest.mark.parametrize("word", [word for word in VERDICTS if word not in ("duplicate",)])
def test_every_verdict_has_its_code(word: str) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    record = taken([TensorFault(name, word, "model.safetensors")])
    (row,) = record.facts.reconciliation.exceptions
    assert (row.verdict, row.code, row.example) == (word, VERDICTS[word].code, name)
    told = [finding for finding in record.findings if finding.code == row.code]
    assert len(told) == VERDICTS[word].own


@pytest.mark.parametrize(
    ("total", "stated", "word"),
    [
        (None, "", "absent"),
        (0, "0", "zero"),
        (None, "'17'", "not_a_number"),
        (12, "12", "neither"),
    ],
)
def test_what_the_total_is(total: int | None, stated: str, word: str) -> None:
    record = taken([], index=IndexSummary("i.json", 41, ("model.safetensors",), total, stated))
    assert record.facts.reconciliation.index.total_size_is in (word, "unchecked")


@pytest.mark.parametrize(
    ("total", "word", "told"),
    [("tensors", "tensor_bytes", 0), ("files", "file_bytes", 0), ("twice", "neither", 1), (0, "zero", 1),
     ("17", "not_a_number", 1), (1.5, "not_a_number", 1), (True, "not_a_number", 1), (None, "absent", 0)],
)  # fmt: skip
def test_totals_of_an_index_on_disk(tmp_path: Path, total: Any, word: str, told: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    layout = {name: ("BF16", shape) for name, (_, shape) in mixtral_tensors().items()}
    paths = write_sharded(tmp_path, layout, 2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    held = index["metadata"]["total_size"]
    sizes = {"tensors": held, "files": sum(path.stat().st_size for path in paths), "twice": 2 * held}
    write_index(tmp_path, index["weight_map"], sizes.get(total, total) if isinstance(total, str) else total)
    record = take_inventory(open_release(str(tmp_path)))
    assert record.facts.reconciliation.index.total_size_is == word
    assert len([finding for finding in record.findings if finding.code == "INV011"]) == told
