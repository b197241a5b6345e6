from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from day0.adapters.sources import staging_journal
from day0.adapters.sources.staging_journal import Journal

SIZE = 1000


@pytest.fixture
def data(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path / "data", os.O_RDWR | os.O_CREAT)
    yield handle
    os.close(handle)


def opened(folder: Path, key: str = "key", size: int = SIZE) -> Journal:
    journal = Journal(folder, key, size)
    journal.refresh()
    return journal


def test_another_process_sees_what_was_noted(tmp_path: Path, data: int) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.add(0, 100, data)
    second.add(200, 300, data)
    first.refresh()
    assert first.missing(0, SIZE) == [(100, 200), (300, SIZE)]
    first.add(100, 150, data)
    second.refresh()
    assert second.held == 250


def test_a_torn_or_damaged_line_does_not_count(tmp_path: Path, data: int) -> None:
    first = opened(tmp_path)
    first.add(0, 100, data)
    first.add(100, 200, data)
    path = next(tmp_path.glob("journal-*"))
    path.write_bytes(path.read_bytes()[:-3])
    assert opened(tmp_path).missing(0, SIZE) == [(100, SIZE)]
    path.write_bytes(path.read_bytes().replace(b"0 100 ", b"0 900 "))
    assert opened(tmp_path).held == 0


@pytest.mark.parametrize("noise", [b"\xff\xfe\n", b"\n\n\n", b"synced 9999999999 00000000\n", b"0 5\n"])
def test_noise_does_not_count(tmp_path: Path, noise: bytes) -> None:
    (tmp_path / "journal-x").write_bytes(noise * 10)
    assert opened(tmp_path).held == 0


def test_lines_for_another_content_or_beyond_the_end_do_not_count(tmp_path: Path, data: int) -> None:
    opened(tmp_path).add(0, 100, data)
    assert opened(tmp_path, key="other").held == 0
    opened(tmp_path, size=10**6).add(0, 10**6, data)
    assert opened(tmp_path).held == 100


def test_after_another_boot_only_what_was_forced_to_disk_counts(
    tmp_path: Path, data: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    journal.add(0, 100, data)
    journal.sync(data)
    journal.add(100, 200, data)
    assert opened(tmp_path).held == 200
    monkeypatch.setattr(staging_journal, "boot_id", lambda: "another boot")
    assert opened(tmp_path).missing(0, SIZE) == [(100, SIZE)]


def test_data_are_forced_to_disk_every_so_often(
    tmp_path: Path, data: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_journal, "SYNC_BYTES", 250)
    journal = opened(tmp_path)
    for start in range(0, 400, 100):
        journal.add(start, start + 100, data)
    monkeypatch.setattr(staging_journal, "boot_id", lambda: "another boot")
    assert opened(tmp_path).missing(0, SIZE) == [(300, SIZE)]


def test_what_one_process_discards_is_gone_for_all(tmp_path: Path, data: int) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.add(0, 100, data)
    second.refresh()
    second.add(100, 200, data)
    first.discard()
    second.refresh()
    assert second.held == first.held == 0
    second.add(5, 10, data)
    first.refresh()
    assert first.held == 5
