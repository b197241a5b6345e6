"""Traps 39 and 40 of real releases: downloads that cannot be taken up again, and shared caches."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from day0.adapters.sources import staging_claims, staging_file, staging_probe, staging_work
from day0.flows.cli import main
from support.local_hub import LocalHub
from support.raw_checkpoints import write_sharded

MODEL = "org/large"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 6,
    "hidden_size": 512,
}


@pytest.fixture
def folder(tmp_path: Path, local_hub: LocalHub) -> Path:
    place = tmp_path / "release"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    layout = {f"model.layers.{layer}.mlp.up_proj.weight": ("I8", [8192, 512]) for layer in range(6)}
    write_sharded(place, {"model.embed_tokens.weight": ("I8", [8192, 512]), **layout}, 4)
    local_hub.add(MODEL, place)
    return place


def command(store: Path) -> list[str]:
    return ["inventory", MODEL, "--stage", "--store", str(store), "--json"]


def staged(folder: Path) -> bool:
    """Whether every file stands whole in the hub's cache, where huggingface_hub looks for it."""
    snapshots = list(Path(os.environ["HF_HUB_CACHE"]).glob("models--org--large/snapshots/*"))
    return all((snapshots[0] / file.name).read_bytes() == file.read_bytes() for file in folder.iterdir())


def test_trap_39_a_download_goes_on_where_a_killed_one_ended(
    local_hub: LocalHub, folder: Path, tmp_path: Path
) -> None:
    """hub #4196, #4228: temporary files of one process, partials deleted, SIGKILL leaves `*.incomplete`."""
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    store = tmp_path / "store"
    assert main([*command(store)[:2], *command(store)[3:]]) in (0, 1)  # the inventory alone is stored
    local_hub.forget()
    local_hub.pace = 0.01
    chance = random.Random(39)
    for point in sorted(chance.uniform(0.05, 0.9) for _ in range(3)):
        process = subprocess.Popen(
            [sys.executable, "-m", "day0.flows.cli", *command(store)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while local_hub.bytes_of("*.safetensors") < point * total and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None
        process.kill()
        process.wait()
        cache = Path(os.environ["HF_HUB_CACHE"])
        assert not any(path.name.endswith(".incomplete") for path in cache.rglob("*"))
    local_hub.pace = 0.0
    assert main(command(store)) in (0, 1)
    assert staged(folder)
    cut = staging_file.PIECE + 256 * 2**10
    headers = 3 * 100_000  # read again by each of the killed runs
    assert local_hub.bytes_of("*.safetensors") <= total + 3 * staging_work.STREAMS * cut + headers


def test_trap_40_a_shared_cache_without_locks_or_links(
    local_hub: LocalHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hub #2580, #4022, #4228: locks of mode 0644, links refused by a NAS, flock a no-op on Lustre."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    cache = Path(os.environ["HF_HUB_CACHE"])
    cache.mkdir()
    cache.chmod(0o2775)
    (cache / "models--org--large").mkdir()
    (cache / "models--org--large").chmod(0o2775)
    real = fcntl.fcntl
    granted: list[int] = []

    def no_op(handle: int, command: int, argument: bytes = b"") -> object:
        if command == fcntl.F_OFD_SETLK:
            granted.append(handle)  # to everybody who asks
            return argument
        return real(handle, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", no_op)
    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    staging_probe.probe_folder.cache_clear()
    leases: list[str] = []
    take = staging_claims.LeaseClaims.take

    def watched(self: staging_claims.LeaseClaims, unit: int) -> staging_claims.Claim | None:
        claim = take(self, unit)
        leases.extend(path.name for path in self._folder.glob("lease-*"))
        for path in self._folder.iterdir():
            assert path.stat().st_mode & 0o060 == 0o060, f"{path} shuts the group out"
        return claim

    monkeypatch.setattr(staging_claims.LeaseClaims, "take", watched)
    try:
        assert main(command(tmp_path / "store")) in (0, 1)
    finally:
        staging_probe.probe_folder.cache_clear()
    assert granted, "a lock was tried, found to mean nothing, and leases were used instead"
    assert leases
    assert staged(folder)
    assert not any(path.is_symlink() for path in cache.rglob("*"))
    assert not any(path.name.startswith("lease-") for path in cache.rglob("*"))
