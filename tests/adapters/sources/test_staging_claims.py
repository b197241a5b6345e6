from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from day0.adapters.sources import staging_claims, staging_probe
from day0.adapters.sources.staging_claims import LeaseClaims, LockClaims
from day0.adapters.sources.staging_probe import is_network, probe_folder

KINDS = [LockClaims, LeaseClaims]

_HOLDER = """
import sys, time
from pathlib import Path
from day0.adapters.sources import staging_claims
claims = getattr(staging_claims, sys.argv[1])(Path(sys.argv[2]))
print(claims.take(3) is not None, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_has_one_holder(tmp_path: Path, kind: type[LockClaims] | type[LeaseClaims]) -> None:
    first, second = kind(tmp_path), kind(tmp_path)
    claim = first.take(0)
    assert claim is not None
    assert second.take(0) is None
    assert first.take(0) is None, "threads of one process count as well"
    other = second.take(1)
    assert other is not None
    claim.release()
    again = second.take(0)
    assert again is not None
    again.release()
    other.release()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_holder_holds_nothing(tmp_path: Path, kind: type[LockClaims] | type[LeaseClaims]) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, kind.__name__, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "True"
        assert kind(tmp_path).take(3) is None
    finally:
        holder.kill()
        holder.wait()
    claim = kind(tmp_path).take(3)
    assert claim is not None
    claim.release()


def test_a_lease_of_another_machine_ends_without_a_sign_of_life(tmp_path: Path) -> None:
    lease = tmp_path / "lease-0"
    lease.write_text("far away\n1")
    assert LeaseClaims(tmp_path).take(0) is None
    past = time.time() - staging_claims.LEASE_SECONDS - 1
    os.utime(lease, (past, past))
    claim = LeaseClaims(tmp_path).take(0)
    assert claim is not None
    assert lease.read_text().endswith(str(os.getpid()))
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_a_sign_of_life_keeps_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_claims, "_BEAT_SECONDS", 0.0)
    claim = LeaseClaims(tmp_path).take(0)
    assert claim is not None
    past = time.time() - staging_claims.LEASE_SECONDS - 1
    os.utime(tmp_path / "lease-0", (past, past))
    claim.beat()
    assert (tmp_path / "lease-0").stat().st_mtime > past + 1
    (tmp_path / "lease-0").unlink()
    claim.beat()
    claim.release()


def test_the_folder_is_tried(tmp_path: Path) -> None:
    abilities = probe_folder(tmp_path / "new")
    assert abilities.symlinks
    assert abilities.hard_links
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("/dev/sda / ext4 rw 0 0\n", False),
        ("/dev/sda / ext4 rw 0 0\nserver:/x {} nfs4 rw,local_lock=all 0 0\n", True),
        ("mgs@tcp:/fs {} lustre rw,localflock 0 0\n/dev/sda / ext4 rw 0 0\n", True),
        ("server:/x / nfs4 rw 0 0\n/dev/sda {} xfs rw 0 0\n", False),
        ("garbage\n", False),
    ],
)
def test_a_network_file_system_is_told_by_its_mount(tmp_path: Path, mounts: str, expected: bool) -> None:
    assert is_network(tmp_path, mounts.format(tmp_path)) is expected


def test_on_a_network_file_system_no_lock_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_probe, "is_network", lambda folder: True)
    assert not probe_folder(tmp_path / "share").locks
