"""Traps 37 to 44: gates, quotas, shared caches, mirrors, servers without ranges, old snapshots."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.checkpoints import safetensors
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources import hub
from day0.flows.cli import main
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.clock import Clock
from support.local_hub import LocalHub
from support.raw_checkpoints import header_of, write_filled, write_sharded
from support.small_releases import SMOLLM2, smollm2_tensors

MODEL = "org/small"
SHARDS = 4
pytestmark = pytest.mark.usefixtures("clock", "fresh")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what this process has read of any release."""
    monkeypatch.setattr(safetensors, "_READ", {})
    monkeypatch.setattr(hub, "_LISTED", {})
    monkeypatch.setattr(hub, "_FOUND", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    layout = {name: ("BF16", shape) for name, (_, shape) in smollm2_tensors().items()}
    write_sharded(folder, layout, SHARDS, sparse=True)
    return folder


@pytest.fixture
def served(local_hub: LocalHub, folder: Path) -> LocalHub:
    local_hub.add(MODEL, folder)
    return local_hub


@pytest.fixture
def asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Runs `day0 inventory ... --json` in an empty folder: exit status, parsed answer, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAY0_STORE", str(tmp_path / "store"))

    def ask(*arguments: str) -> tuple[int, dict[str, Any], str]:
        capfd.readouterr()
        status = main(["inventory", *arguments, "--json"])
        captured = capfd.readouterr()
        return status, json.loads(captured.out) if captured.out else {}, captured.err

    return ask


def inventory(model: str = MODEL) -> InventoryRecord:
    return take_inventory(open_release(model), expected=False)


def codes(record: InventoryRecord) -> set[str]:
    return {finding.code for finding in record.findings}


@pytest.mark.parametrize(
    ("kind", "said", "remedy"),
    [
        ("anonymous", "is gated and no token was sent", "log in with"),
        ("terms", "has no access to it yet", "Accept its terms"),
        ("scope", "the fine-grained token in use may not read gated", "public gated repos"),
    ],
)
def test_trap_37_gates_are_told_apart_and_the_listing_is_recorded(
    served: LocalHub, asked: Callable[..., Any], folder: Path, kind: str, said: str, remedy: str
) -> None:
    served.repositories[MODEL].gated = kind
    status, record, _ = asked(MODEL)
    assert status == 3
    (finding,) = [item for item in record["findings"] if item["code"] == "INV037"]
    assert said in finding["message"]
    assert remedy in " ".join([*finding["evidence"], finding["remedy"]])
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert f"{SHARDS} weight files with {held:,} bytes, {SHARDS} of them with a sha256" in finding["message"]
    assert record["totals"]["shards"] == SHARDS
    assert record["verdict"] == "unverified"


def test_trap_37_missing_and_private_are_one_answer_and_a_bad_token_another(
    served: LocalHub, asked: Callable[..., Any]
) -> None:
    status, _, missing = asked("org/missing")
    served.repositories[MODEL].private = True
    other, _, private = asked(MODEL)
    assert status == other == 2
    assert "E107" in missing
    assert "E107" in private
    refused = {"X-Error-Message": "Invalid credentials in Authorization header"}
    served.fail("/api/models/*", status=401, headers=refused)
    status, _, answer = asked(MODEL)
    assert (status, "E115" in answer) == (2, True)


def test_trap_38_headers_behind_a_quota_are_asked_for_again_by_its_hint(
    served: LocalHub, clock: Clock
) -> None:
    clean = inventory()
    served.fail(
        "*.safetensors", status=429, times=1, each=True, headers={"RateLimit": '"resolvers";r=0;t=55'}
    )
    served.forget()
    safetensors._READ.clear()
    assert inventory().facts == clean.facts
    assert all(55 <= wait <= 57 for wait in clock.waits)  # all threads wait together at one gate
    assert served.count("*.safetensors") == 3 * SHARDS


def test_trap_40_a_cache_that_takes_no_files_stops_nothing(
    served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = inventory()
    (tmp_path / "a-file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "a-file" / "cache"))
    without = inventory()
    assert without.facts == clean.facts
    assert codes(without) - codes(clean) == {"INV038"}
    assert without.verdict == clean.verdict


def test_trap_40_what_is_kept_is_readable_for_all_who_share_the_cache(
    served: LocalHub, tmp_path: Path
) -> None:
    umask = os.umask(0o022)
    try:
        inventory()
    finally:
        os.umask(umask)
    kept = [path for path in (tmp_path / "hub-cache").rglob("*") if path.is_file()]
    assert any(path.name == "config.json" for path in kept)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in kept)
    assert not [path for path in kept if path.suffix in (".lock", ".incomplete")]


@pytest.mark.parametrize("trait", ["bare", "redirect", "foreign_links"])
def test_trap_41_mirrors_of_all_kinds_give_the_same_record(
    served: LocalHub, monkeypatch: pytest.MonkeyPatch, trait: str
) -> None:
    clean = inventory()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    setattr(served, trait, True)
    served.page = 3
    served.forget()
    for memory in (safetensors._READ, hub._LISTED):
        memory.clear()
    assert inventory().facts == clean.facts
    assert served.bytes_of("*.safetensors") == clean.facts.header_bytes_total
    home = int(served.url.rpartition(":")[2])
    assert {port for _, port in served.secrets} == {home}  # the token stays with the hub


def test_trap_41_a_storage_host_out_of_reach_is_named(served: LocalHub) -> None:
    inventory()
    served.redirect, served.storage = True, "http://127.0.0.1:9"
    safetensors._READ.clear()
    with pytest.raises(InputError, match=r"sends us to 127\.0\.0\.1:9 .*E106"):
        inventory()


def test_trap_42_a_server_without_ranges_is_left_after_the_bytes_needed(
    served: LocalHub, folder: Path
) -> None:
    clean = inventory()
    big = folder / "model-00001-of-00004.safetensors"
    with big.open("r+b") as file:
        file.truncate(400 * 2**20)  # past its end: one more fault that the header tells
    repository = served.add(MODEL, folder)
    served.ignore_ranges = True
    served.forget()
    record = inventory()
    assert record.facts.identity.revision == repository.commit
    assert record.facts.totals == clean.facts.totals
    assert served.bytes_of(f"*/{big.name}") < 24 * 2**20  # two socket buffers' worth, of 400 MiB
    checkpoint = open_release(MODEL).checkpoint
    name, info = next(item for item in checkpoint.tensors.items() if item[1].file != big.name)
    assert len(checkpoint.read(name)) == info.bytes  # the whole file in one plain stream


@pytest.mark.parametrize("length", [99_984, 99_992, 99_994, 99_999, 100_000, 100_001, 100_008])
def test_trap_43_headers_at_the_boundary_of_100_000_bytes(
    local_hub: LocalHub, tmp_path: Path, length: int
) -> None:
    folder = tmp_path / "boundary"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    layout = {"model.norm.weight": ("BF16", [576])}
    plain = len(header_of(layout, {"pad": ""})[0])
    header, data = header_of(layout, {"pad": "x" * (length - plain)})
    assert len(header) == length
    (folder / "model.safetensors").write_bytes(length.to_bytes(8, "little") + header + bytes(data))
    local_hub.add("org/boundary", folder)
    checkpoint = open_release("org/boundary").checkpoint
    assert list(checkpoint.tensors) == ["model.norm.weight"]
    assert checkpoint.header_bytes == 8 + length == local_hub.bytes_of("*.safetensors")


def test_trap_44_a_revision_is_all_of_a_hash_or_none_of_it(
    served: LocalHub, asked: Callable[..., Any]
) -> None:
    commit = served.repositories[MODEL].commit
    served.forget()
    for wrong in (f"{commit}\n", f" {commit}", f"{commit}..", "a b", ""):
        status, _, answer = asked(MODEL, "--revision", wrong) if wrong else asked(f"{MODEL}@{commit}\n")
        assert (status, "E131" in answer) == (2, True)
    assert served.count() == 0
    assert asked(MODEL, "--revision", commit)[0] == 0


def test_trap_44_an_offline_snapshot_is_held_against_its_listing(
    served: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.json").write_text('{"model_type": "unheard-of"}')
    clean = inventory()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    safetensors._READ.clear()
    record = inventory()  # config and index are kept, no weights were ever asked for
    assert record.verdict == "unverified"
    (finding,) = [item for item in record.findings if item.code == "INV037"]
    assert f"{SHARDS} of {SHARDS} weight files" in finding.message
    assert "INV002" not in codes(record)
    assert record.facts.identity.revision == clean.facts.identity.revision
    assert record.facts.config == clean.facts.config


def test_trap_44_a_cached_file_of_another_length_is_no_cached_file(
    served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = open_release(MODEL)
    assert release.source is not None
    kept = next((tmp_path / "hub-cache").rglob("snapshots/*/config.json"))
    kept.resolve().write_text('{"model_type"')
    assert release.source.read("config.json") == json.dumps(SMOLLM2).encode()
    kept.resolve().write_text('{"model_type"')
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="E109"):
        open_release(MODEL)


def test_trap_44_a_snapshot_without_a_listing_says_so(
    served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "old-cache" / "models--org--small"
    snapshot = cache / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(SMOLLM2))
    write_filled(snapshot / "model.safetensors", {"model.norm.weight": ("BF16", [576])})
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("c" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "old-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "INV039" in codes(inventory())
    assert served.count() == 0
