"""Releases of which a part is absent, unread, a pointer or without a config: one fact each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.checkpoints import safetensors
from day0.adapters.checkpoints.release import open_release
from day0.flows.cli import main
from day0.flows.inventory_text import inventory_text
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.clock import Clock
from support.local_hub import LocalHub
from support.raw_checkpoints import write_filled, write_sharded
from support.small_releases import MIXTRAL, mixtral_tensors

LAYOUT = {name: ("BF16", shape) for name, (_, shape) in mixtral_tensors().items()}
FP8 = {
    "model.layers.0.self_attn.o_proj.weight": ("F8_E4M3", (128, 128)),
    "model.layers.1.self_attn.o_proj.weight": ("F8_E4M3", (128, 128)),
    "model.layers.0.self_attn.o_proj.weight_scale_inv": ("F32", (1, 1)),
    "model.layers.1.self_attn.o_proj.weight_scale_inv": ("F32", (1, 1)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    release = tmp_path / "release"
    release.mkdir()
    (release / "config.json").write_text(json.dumps(MIXTRAL))
    return release


def take(folder: Path) -> InventoryRecord:
    return take_inventory(open_release(str(folder)), expected=False)


def told(record: InventoryRecord) -> str:
    return "\n".join(inventory_text(record))


def codes(record: InventoryRecord) -> list[str]:
    return [finding.code for finding in record.findings]


def test_absent_shards_are_one_finding_and_every_count_says_so_far(folder: Path) -> None:
    paths = write_sharded(folder, LAYOUT, 30)
    for path in paths[3:]:
        path.unlink()
    record = take(folder)
    (finding,) = [item for item in record.findings if item.code == "INV002"]
    assert f"{len(paths) - 3} of 30 announced tensor files" in finding.message
    assert "4-30 of model-*-of-00030.safetensors" in finding.message
    assert finding.evidence[-1] == "and 7 more"
    assert codes(record)[:2] == ["INV045", "INV002"]
    assert not {"INV019", "INV020", "INV021", "INV023", "INV028", "INV091"} & set(codes(record))
    text = told(record)
    assert "27 files awaited: " in text
    assert "and 23 more" in text
    assert f"so far {record.facts.totals.tensors} of 41 tensors" in text


def test_a_scale_in_an_absent_shard_is_awaited_and_one_in_no_shard_is_missing(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": "deepseek_v3", "quantization_config":
             {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
        )
    )  # fmt: skip
    lost = dict(list(FP8.items())[:3])
    for layout, missing in ((FP8, 0), (lost, 1)):
        paths = write_sharded(folder, layout, 1)
        names = list(layout)
        write_filled(paths[0], {name: layout[name] for name in names[:2]})
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        for name in names[2:]:
            index["weight_map"][name] = "model-00002-of-00002.safetensors"
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        safetensors._READ.clear()
        checks = take(folder).facts.quantization.checks
        assert (checks.without_scale, checks.awaited) == (missing, 2 - missing)


def test_a_shard_missing_and_one_cut_is_broken(folder: Path) -> None:
    paths = write_sharded(folder, LAYOUT, 4)
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[:-4])
    record = take(folder)
    assert record.facts.readiness.state == "broken"
    assert record.facts.readiness.reasons[0] == "1 announced file is not there"
    assert "1 tensor file is shorter than its header promises" in record.facts.readiness.reasons[1]


def test_pointers_are_one_finding_with_its_own_remedy(folder: Path) -> None:
    for number in range(1, 6):
        pointer = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{number:064x}\nsize {1000 + number}\n"
        )
        (folder / f"model-{number:05d}-of-00005.safetensors").write_text(pointer)
    record = take(folder)
    (finding,) = [item for item in record.findings if item.code == "INV097"]
    assert "INV009" not in codes(record)
    assert finding.message.startswith("5 tensor files, ")
    assert "5,015 bytes" in finding.message
    assert f"{1:064x}" in finding.evidence[0]
    assert "git lfs pull" in finding.remedy


def test_weights_without_a_config_are_opened_and_block_what_needs_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sharded(folder, LAYOUT, 2)
    (folder / "config.json").unlink()
    record = take(folder)
    assert record.facts.readiness.state == "no_config"
    assert record.verdict == "unverified"
    assert record.facts.totals.tensors == 41
    assert record.facts.distribution is not None
    assert len({row.name for row in record.facts.distribution.rows}) > 2
    store = str(tmp_path / "store")
    assert main(["inventory", str(folder), "--store", store]) == 3
    capsys.readouterr()
    assert main(["plan", str(folder), "--store", store]) == 2
    assert "has no config.json" in capsys.readouterr().err


def test_a_shard_that_no_server_hands_out_leaves_a_record(
    local_hub: LocalHub,
    clock: Clock,
    folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_sharded(folder, LAYOUT, 4)
    local_hub.add("org/part", folder)
    local_hub.fail("*model-00002-of-00004.safetensors", status=503, times=10_000)
    arguments = ["inventory", "org/part", "--json", "--store", str(tmp_path / "store")]
    assert main(arguments) == 3
    record = json.loads(capfd.readouterr().out)
    (finding,) = [item for item in record["findings"] if item["code"] == "INV096"]
    assert "503" in finding["message"]
    assert record["readiness"]["state"] == "partly_read"
    assert not [item for item in record["findings"] if item["severity"] == "error"]
    local_hub.faults.clear()
    assert main(arguments) != 3  # recovered: not the stored record
    assert json.loads(capfd.readouterr().out)["totals"]["tensors"] == 41


@pytest.mark.usefixtures("clock")
def test_an_index_that_no_server_hands_out_leaves_a_record(
    local_hub: LocalHub, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sharded(folder, LAYOUT, 4)
    local_hub.add("org/index", folder)
    local_hub.fail("*.index.json", status=500, times=10_000)
    arguments = ["inventory", "org/index", "--json", "--store", str(tmp_path / "store")]
    assert main(arguments) == 3
    record = json.loads(capfd.readouterr().out)
    (finding,) = [item for item in record["findings"] if item["code"] == "INV098"]
    assert finding["subject"]["name"] == "model.safetensors.index.json"
    assert record["totals"]["tensors"] == 41
    assert not {"INV006", "INV010"} & {item["code"] for item in record["findings"]}
    local_hub.faults.clear()
    assert main(arguments) != 3
    record = json.loads(capfd.readouterr().out)
    assert record["reconciliation"]["index"]["tensors"] == 41
