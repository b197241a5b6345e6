"""The hub as a source, against a real server on loopback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from day0.adapters.base.errors import AccessError, InputError, SourceError
from day0.adapters.base.source import Source
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources.resolve import open_source
from support.clock import Clock
from support.local_hub import LocalHub
from support.raw_checkpoints import write_sharded

MODEL = "org/tiny"
WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    write_sharded(folder, {f"t{number}": ("BF16", (256, 256)) for number in range(4)}, 2)
    return folder


@pytest.fixture
def hub(local_hub: LocalHub, folder: Path) -> LocalHub:
    local_hub.add(MODEL, folder)
    return local_hub


def opened(revision: str | None = None) -> Source:
    return open_source(MODEL, revision)


def test_a_name_is_pinned_to_its_commit_and_listed_with_hashes(hub: LocalHub, folder: Path) -> None:
    source = opened()
    assert source.revision == hub.repositories[MODEL].commit
    assert {file.path: file.size for file in source.files()} == {
        path.name: path.stat().st_size for path in folder.iterdir()
    }
    weights = next(file for file in source.files() if file.path == WEIGHTS)
    assert weights.identity == weights.sha256
    assert len(weights.identity) == 64


def test_a_commit_a_tag_and_an_at_sign_pin(hub: LocalHub) -> None:
    repository = hub.repositories[MODEL]
    repository.refs["v1"] = repository.commit
    assert opened("v1").revision == open_source(f"{MODEL}@v1").revision == repository.commit
    hub.forget()
    assert opened(repository.commit).revision == repository.commit
    assert hub.count("/api/models/org/tiny") == 0


def test_a_moved_branch_does_not_move_an_opened_source(hub: LocalHub, folder: Path) -> None:
    source = opened()
    hub.repositories[MODEL].refs["main"] = "f" * 40
    assert source.read("config.json") == (folder / "config.json").read_bytes()
    assert hub.count("*/resolve/main/*") == 0


def test_ranges_cost_exactly_their_bytes(hub: LocalHub, folder: Path) -> None:
    source = opened()
    hub.forget()
    assert source.read(WEIGHTS, 5, 15) == (folder / WEIGHTS).read_bytes()[5:15]
    assert hub.bytes_of(f"*/{WEIGHTS}") == 10
    size = (folder / WEIGHTS).stat().st_size
    assert source.read(WEIGHTS, size - 3, size + 50) == (folder / WEIGHTS).read_bytes()[-3:]
    assert source.read(WEIGHTS, size) == b""
    with pytest.raises(SourceError, match="E202"):
        source.read(WEIGHTS, size + 1)
    with pytest.raises(SourceError, match="E201"):
        source.read("missing")


def test_opening_a_release_fetches_headers_and_no_weights(hub: LocalHub) -> None:
    release = open_release(MODEL)
    checkpoint = release.checkpoint
    assert checkpoint.anomalies == ()
    assert len(checkpoint.tensors) == 4
    assert hub.bytes_of("*.safetensors") == checkpoint.header_bytes


def test_a_release_opened_again_costs_no_header(hub: LocalHub) -> None:
    first = open_release(MODEL)
    hub.forget()
    second = open_release(MODEL)
    assert hub.count("*.safetensors") == 0
    assert second.weights_digest == first.weights_digest


def test_a_shard_that_could_not_be_read_is_tried_again(hub: LocalHub, clock: Clock) -> None:
    hub.fail(f"*/{WEIGHTS}", status=404, headers={"X-Error-Code": "EntryNotFound"})
    broken = open_release(MODEL).checkpoint
    assert [anomaly.code for anomaly in broken.anomalies] == ["shard_unreadable"]
    assert open_release(MODEL).checkpoint.anomalies == ()


def test_a_file_is_fetched_once_and_then_read_from_the_cache(hub: LocalHub, folder: Path) -> None:
    source = opened()
    path = source.local_path(WEIGHTS)
    assert path.read_bytes() == (folder / WEIGHTS).read_bytes()
    hub.forget()
    assert source.local_path(WEIGHTS) == path
    assert source.read(WEIGHTS, 5, 15) == path.read_bytes()[5:15]
    assert hub.count() == 0


def test_a_server_that_ignores_ranges_is_left_early(hub: LocalHub, folder: Path) -> None:
    big = folder / "big.safetensors"
    big.write_bytes(bytes(64 * 2**20))
    source = opened()
    hub.ignore_ranges = True
    hub.forget()
    assert source.read("big.safetensors", 8, 108) == bytes(100)
    assert hub.bytes_of("*/big.safetensors") < big.stat().st_size
    with pytest.raises(SourceError, match="E205"):
        source.read("big.safetensors", 32 * 2**20, 32 * 2**20 + 8)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again_after_the_time_it_names(
    hub: LocalHub, clock: Clock, status: int
) -> None:
    hub.fail("/api/models/*", status=status, times=2, headers={"Retry-After": "3"})
    assert opened().revision == hub.repositories[MODEL].commit
    assert clock.about([3.0, 3.0])


def test_the_rate_limit_header_is_honoured(hub: LocalHub, clock: Clock) -> None:
    hub.fail("/api/models/*", status=429, headers={"RateLimit": '"api";r=0;t=7'})
    opened()
    assert clock.about([8.0])


def test_waiting_is_bounded_in_number_and_length(hub: LocalHub, clock: Clock) -> None:
    hub.fail("/api/models/*", status=503, times=100)
    with pytest.raises(InputError, match="E133"):
        opened()
    assert clock.about([0.5, 1.0, 2.0, 4.0])
    hub.faults.clear()
    hub.fail("/api/models/*", status=429, headers={"Retry-After": "3600"})
    with pytest.raises(InputError, match="E133"):
        opened()
    assert len(clock.waits) == 4


def test_a_cut_connection_is_taken_up_again(hub: LocalHub, folder: Path, clock: Clock) -> None:
    source = opened()
    hub.fail(f"*/{WEIGHTS}", cut_after=4, times=2)
    assert source.read(WEIGHTS, 5, 105) == (folder / WEIGHTS).read_bytes()[5:105]
    assert len(clock.waits) == 2


def test_an_unreachable_hub(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(InputError, match="E106") as caught:
        open_release(MODEL)
    assert "cannot be reached" in str(caught.value)


def test_a_missing_repository_revision_and_config(hub: LocalHub, folder: Path) -> None:
    with pytest.raises(InputError, match="E107"):
        open_release("org/missing")
    with pytest.raises(InputError, match="E131"):
        open_release(MODEL, "no-such-branch")
    with pytest.raises(InputError, match="E131"):
        open_release(MODEL, "0" * 40)
    for path in folder.iterdir():
        if path.name == "config.json" or "safetensors" in path.name:
            path.unlink()
    with pytest.raises(InputError, match="E102"):
        open_release(MODEL)


def test_a_gated_and_a_private_repository_are_told_apart(hub: LocalHub) -> None:
    hub.repositories[MODEL].gated = True
    with pytest.raises(AccessError, match="E108") as caught:
        opened().read("config.json")
    assert "HF_TOKEN" in caught.value.remedy
    hub.repositories[MODEL].private = True
    with pytest.raises(InputError, match="E107"):
        open_release(MODEL)


@pytest.mark.parametrize("model", ["org/na me", "org/na--me", "org/..", "-x/y", "org/", "a\nb", "x" * 200])
def test_what_cannot_be_a_hub_id_is_never_asked_for(hub: LocalHub, model: str) -> None:
    with pytest.raises(InputError, match="E104"):
        open_source(model)
    assert hub.count() == 0


def test_offline_uses_the_cached_snapshot_with_the_same_identities(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = open_release(MODEL, "main")
    assert online.source is not None
    for file in online.source.files():
        online.source.local_path(file.path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    commit = hub.repositories[MODEL].commit
    with pytest.raises(InputError, match="E109"):
        open_release("org/other")
    with pytest.raises(InputError, match="E109"):
        open_release(MODEL, "v2")
    hub.forget()
    offline = open_release(MODEL, commit)
    assert hub.count() == 0
    assert offline.revision == online.revision
    assert offline.weights_digest == online.weights_digest
    assert offline.structure_digest == online.structure_digest
