"""The inventory's section: complete, sourced, readable at any size."""

from __future__ import annotations

import time
from functools import cache

import pytest

from day0.reports.assemble import assemble
from day0.reports.model import Report
from day0.reports.page.build import build_page, unsourced_blocks
from day0.reports.page.inventory_figures import inventory_figures
from day0.reports.page.parts import Table
from day0.reports.pointers import unsourced_numbers
from day0.reports.render import render
from day0.reports.strict_json import plain
from day0.tasks.inventory.record import InventoryRecord, RoleSize
from day0.tasks.inventory.record_reconciliation import ExceptionRow, Readiness, Reconciliation, RedundantSet
from day0.tasks.inventory.record_structure import SpecialToken, Tokenizer
from day0.tasks.inventory.record_trust import Code, CodeCall, CodeFile, PickleFile
from day0.tasks.inventory.record_verification import ContentPattern, Verification, VerifiedShard
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release, make_release
from support.small_releases import SMOLLM2, smollm2_tensors

KIMI = "moonshotai--Kimi-K2.5"


@cache
def taken(name: str = "openai--gpt-oss-20b") -> InventoryRecord:
    return take_inventory(layout_release(name), layouts=["tp=8", "tp=3", "tp=8,ep=8"])


def report_of(record: InventoryRecord) -> Report:
    return assemble("r", "org/model", record, {})


def tables(record: InventoryRecord) -> dict[str, Table]:
    (block,) = build_page(report_of(record)).sections[0].blocks
    return {table.id: table for table in block.tables}


def words(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


def with_facts(record: InventoryRecord, **changes: object) -> InventoryRecord:
    facts = record.facts.model_copy(update=changes)
    return record.model_copy(update={"facts": facts})


def test_every_number_has_a_source() -> None:
    assert unsourced_numbers(plain(taken().facts), taken().sources) == []
    assert unsourced_blocks(build_page(report_of(taken()))) == []


def test_distribution_is_folded_and_exact() -> None:
    rows = words(tables(taken())["inventory--distribution"])
    assert rows[0][:4] == ["model.embed_tokens", "embedding", "579,133,440", "579,133,440"]
    assert rows[1][0] == "model.layers 0-22:2 (sliding moe, 12 layers)"
    assert rows[4][1:4] == ["expert", "796,538,880", "99,567,360"]
    assert rows[2][5] == "2,048"
    assert rows[2][6] == "[B, T, 2880] → q [B, T, 64, 64], k and v [B, T, 8, 64] → [B, T, 2880]"
    assert len(rows) == 2 * 4 + 3


def test_memory_of_each_layout_and_why_one_is_not_possible() -> None:
    table = tables(taken())["inventory--memory"]
    rows = {row[0]: row for row in words(table)}
    assert rows["tp=8,ep=8"][1:4] == ["8", "1.72 GB", "1.72 GB"]
    assert rows["tp=3"][-1] == "not possible: 64 heads % 3 = 1"
    assert [row.status for row in table.rows] == ["", "blocked", ""]


def test_three_conventions_stand_by_name() -> None:
    rows = dict(words(tables(taken())["inventory--counts"]))
    assert rows["active, with embedding and head"] == "4,187,440,704"
    assert rows["active, without the embedding"] == "3,608,307,264"
    assert rows["active, without embedding and head"] == "3,029,173,824"


def test_quantisation_and_exchange_are_there() -> None:
    found = tables(taken())
    assert ["scheme", "mxfp4"] in words(found["inventory--quantization"])
    assert ["expert", "EP", "all-to-all"] in [row[:3] for row in words(found["inventory--exchange"])]


def test_disagreements_and_readiness_come_first() -> None:
    hole = ExceptionRow(
        verdict="index_only", pattern="model.layers.{l}.a", layers="3,7-9", experts="0-255", tensors=1024,
        files=["model-1.safetensors"], example="model.layers.3.a", code="INV004",
    )  # fmt: skip
    record = with_facts(
        taken(),
        reconciliation=Reconciliation(consistent=5, faulty=1024, exceptions=[hole]),
        readiness=Readiness(
            state="arriving", reasons=["two shards are awaited"], awaited=["x"], more_awaited=1
        ),
        redundant=[RedundantSet(kind="metal", name="metal/model", files=1, bytes=13, redundant=True)],
    )
    found = tables(record)
    assert list(found)[:3] == ["inventory--state", "inventory--exceptions", "inventory--redundant"]
    assert words(found["inventory--exceptions"])[0][:4] == [
        "index only", "model.layers.{l}.a", "layers 3,7-9, experts 0-255", "1,024",
    ]  # fmt: skip
    state = dict(words(found["inventory--state"]))
    assert state["release"] == "still arriving: what is there is sound"
    assert state["awaited"] == "2 files awaited: x and 1 more"
    assert state["all four"] == "5 tensors agree, 1,024 do not"


def test_what_verification_showed() -> None:
    shards = [
        VerifiedShard(path="a", size=5, sha256="1", expected="1", state="as_before"),
        VerifiedShard(path="b", size=5, sha256="2", expected="3", state="changed"),
    ]
    patterns = [
        ContentPattern(pattern="x", dtype="bf16", role="norm", tensors=2, nan=3, bad_tensors=1, worst="x.1"),
        ContentPattern(pattern="y", dtype="bf16", role="norm", tensors=1, max_abs=2.5),
    ]
    verification = Verification(
        shards=shards, bytes=10, tensors=3, partly_checked=0, unchecked=0, nan=3, inf=0, zero_tensors=0,
        patterns=patterns,
    )  # fmt: skip
    found = tables(with_facts(taken(), verification=verification))
    told = dict(words(found["inventory--verification"]))
    assert told["files"] == "1 as last verified, 1 changed since last verified"
    assert [row[:2] for row in words(found["inventory--verified-shards"])] == [
        ["b", "changed since last verified"]
    ]
    assert "read by" not in told
    earlier = with_facts(taken(), verification=verification.model_copy(update={"earlier": True}))
    shown = dict(words(tables(earlier)["inventory--verification"]))
    assert shown["read by"].startswith("an earlier --verify")
    numbers = found["inventory--verified-numbers"]
    assert words(numbers)[0] == ["x", "bf16", "2", "3", "0", "0", "0", "x.1"]
    assert [row.status for row in numbers.rows] == ["fail", ""]


def test_every_role_has_a_colour_of_its_own() -> None:
    facts = taken(KIMI).facts
    for number in (11, 16, 20):
        roles = {
            f"role{place}": RoleSize(params=99 - place, bytes=99 - place, dtypes={})
            for place in range(number)
        }
        figure = inventory_figures(facts.model_copy(update={"roles": roles}))[0]
        swatches = [key.css for key in figure.legend]
        assert len(set(swatches)) == len(swatches) == min(number, 16)
        assert figure.legend[-1].text == ("5 others" if number > 16 else f"role{number - 1}")


def test_what_a_release_asks_to_be_trusted_with() -> None:
    record = with_facts(
        taken(),
        code=Code(
            files=[CodeFile(path="modeling_x.py", lines=3, packages=["torch"])],
            kernels=["triton:k"],
            calls=[CodeCall(kind="process", what="subprocess.run", file="modeling_x.py", line=2)],
        ),
        pickles=[PickleFile(path="a.bin", size=10, globals=["os.system"], foreign=["os.system"])],
        tokenizer=Tokenizer(kind="bpe", tokens=5, special_tokens=[SpecialToken(text="<s>", id=1, use="bos")]),
    )
    found = tables(record)
    assert words(found["inventory--calls"])[0] == ["subprocess.run", "process", "modeling_x.py", "2"]
    assert found["inventory--pickles"].rows[0].status == "fail"
    assert ["bos token", "'<s>', 1"] in words(found["inventory--tokenizer"])


@pytest.mark.parametrize("config", [{}, SMOLLM2, {"num_hidden_layers": 3}])
def test_little_is_known(config: dict[str, object]) -> None:
    record = take_inventory(make_release(config, {}), expected=False)
    assert "only a config" in render(report_of(record))


def test_names_of_a_stranger_are_escaped() -> None:
    tensors = smollm2_tensors()
    tensors["model.layers.0.<script>alert(1)</script>.weight"] = ("bf16", (2,))
    page = render(report_of(take_inventory(make_release(SMOLLM2, tensors))))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.slow
def test_a_trillion_parameters_render_quickly() -> None:
    record = taken(KIMI)
    began = time.process_time()
    page = render(report_of(record))
    assert time.process_time() - began < 2
    assert len(page.encode()) < 500_000


def test_a_release_without_any_regularity_stays_readable() -> None:
    tensors = {f"model.layers.{layer}.part{layer}.weight": ("bf16", (layer + 1, 2)) for layer in range(2_000)}
    record = take_inventory(make_release({"num_hidden_layers": 2_000}, tensors))
    began = time.process_time()
    page = render(report_of(record))
    assert time.process_time() - began < 4
    assert len(page.encode()) < 1_500_000
    assert "200 worst of 2,000 rows" in page
