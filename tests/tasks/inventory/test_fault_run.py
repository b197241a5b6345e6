"""The fault run: every file answers 429 twice, half the shards are cut once; the facts stay the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.checkpoints import safetensors
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources import hub
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.clock import Clock
from support.local_hub import LocalHub
from support.raw_checkpoints import write_sharded
from support.small_releases import SMOLLM2, smollm2_tensors

MODEL = "org/small"
SHARDS = 8
CUT = 50  # bytes of a header that come before the connection ends


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    write_sharded(
        folder, {name: ("BF16", shape) for name, (_, shape) in smollm2_tensors().items()}, SHARDS, sparse=True
    )
    return folder


def inventory(
    served: LocalHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[InventoryRecord, int, int]:
    """A record made with nothing cached or remembered; the requests and bytes of bodies that it took."""
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(safetensors, "_READ", {})
    monkeypatch.setattr(hub, "_LISTED", {})
    monkeypatch.setattr(hub, "_FOUND", {})
    served.forget()
    record = take_inventory(open_release(MODEL))
    return record, served.count(), served.bytes_of()


@pytest.mark.usefixtures("clock")
def test_faults_cost_their_requests_and_change_nothing(
    local_hub: LocalHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    local_hub.add(MODEL, folder)
    local_hub.delay = 0.005
    clean, requests, transferred = inventory(local_hub, tmp_path / "first", monkeypatch)
    # Commit, listing, branch once more; config, index and two texts whole; two ranges of each shard.
    assert requests == 3 + 4 + 2 * SHARDS
    refused = {"RateLimit": '"resolvers";r=0;t=3'}
    local_hub.fail("*/resolve/*", status=429, times=2, each=True, headers=refused)
    local_hub.fail("*-0000[1-4]-of-*.safetensors", cut_after=CUT, times=2, each=True)
    faulty, more_requests, more_transferred = inventory(local_hub, tmp_path / "second", monkeypatch)
    assert faulty.facts == clean.facts
    assert faulty.facts_digest == clean.facts_digest
    assert faulty.findings == clean.findings
    files = SHARDS + 4
    assert more_requests == requests + 2 * files + SHARDS // 2
    assert more_transferred == transferred + 2 * files * len(b"{}")  # no byte came twice
    assert clock.waits
    assert max(clock.waits) < 5
