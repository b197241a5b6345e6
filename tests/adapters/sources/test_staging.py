from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.sources import staging_file, staging_place, staging_probe, staging_work
from day0.adapters.sources.hub import HubSource
from day0.adapters.sources.resolve import open_source
from day0.adapters.sources.staging import Stager, Wanted, local_part, read_part, stage_files
from day0.adapters.sources.staging_place import StagingPlace
from support.local_hub import LocalHub

MODEL = "org/staged"
SHARD = "model-{}.safetensors"
MIB = 2**20
# What a kill may cost on each stream: the piece that no line of a journal stands for yet, and what the server
# had sent on its way to it.
CUT = staging_file.PIECE + 256 * 2**10

_STAGE = """
import sys
from day0.adapters.sources.resolve import open_source
from day0.adapters.sources.staging import Stager, Wanted
from day0.adapters.sources.staging_parts import Parts
source = open_source(sys.argv[1])
stager = source.stager
stager._unit = int(sys.argv[2])
stager.stage([Wanted(file.path) for file in source.files()])
"""


def content(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "release"
    place.mkdir()
    (place / "config.json").write_text("{}")
    return place


@pytest.fixture
def hub(local_hub: LocalHub, folder: Path) -> LocalHub:
    local_hub.add(MODEL, folder)
    return local_hub


def shards(folder: Path, number: int, size: int) -> None:
    for index in range(number):
        (folder / SHARD.format(index)).write_bytes(content(str(index), size))


def opened() -> HubSource:
    source = open_source(MODEL)
    assert isinstance(source, HubSource)
    return source


def check(folder: Path) -> None:
    """Every file stands where huggingface_hub looks for it, with the right bytes."""
    from huggingface_hub import snapshot_download

    found = Path(snapshot_download(MODEL, local_files_only=True, cache_dir=os.environ["HF_HUB_CACHE"]))
    for file in folder.iterdir():
        assert (found / file.name).read_bytes() == file.read_bytes()
        assert (found / file.name).resolve().parent.name == "blobs"


def staging(unit: int = 128 * MIB) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _STAGE, MODEL, str(unit)], stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def killed() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_files_are_staged_where_everybody_finds_them(hub: LocalHub, folder: Path) -> None:
    shards(folder, 3, 3 * MIB + 17)
    source = opened()
    seen: list[tuple[int, int, str]] = []
    hub.forget()
    wanted = [Wanted(file.path) for file in source.files()]
    done = stage_files(source, wanted, lambda step, now, total, note="": seen.append((now, total, note)))
    total = sum(file.size for file in source.files())
    assert (done.files, done.bytes, done.fetched) == (4, total, total)
    assert sum(hub.served.values()) == total
    assert seen[-1][0] == seen[-1][1] == -(-total // 10**6)
    assert "GB/s" in seen[-1][2]
    check(folder)
    hub.forget()
    assert stage_files(opened(), wanted).fetched == 0
    assert hub.bytes_of("*.safetensors") == 0


def test_five_kills_cost_only_what_was_in_flight(
    hub: LocalHub, folder: Path, killed: list[subprocess.Popen[str]]
) -> None:
    shards(folder, 5, 6 * MIB)
    (folder / SHARD.format("long")).write_bytes(content("long", 18 * MIB))
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    hub.pace = 0.015  # some 35 MB/s over eight streams
    chance = random.Random(20261129)
    for point in sorted(chance.uniform(0.05, 0.9) for _ in range(5)):
        process = staging(unit=8 * MIB)
        killed.append(process)
        while hub.bytes_of("*.safetensors") < point * total and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()[1]
        process.kill()
        process.wait()
    hub.pace = 0.0
    last = staging(unit=8 * MIB)
    killed.append(last)
    assert last.wait(60) == 0
    check(folder)
    assert total <= hub.bytes_of("*.safetensors") <= total + 5 * staging_work.STREAMS * CUT


@pytest.mark.parametrize("locks", [True, False])
def test_two_processes_share_the_work(
    hub: LocalHub,
    folder: Path,
    killed: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    locks: bool,
) -> None:
    shards(folder, 2, 2 * MIB)
    (folder / SHARD.format("long")).write_bytes(content("long", 16 * MIB))
    hub.pace = 0.01
    if not locks:
        site = folder.parent / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "from day0.adapters.sources import staging_probe as probe\nprobe.is_network = lambda _: True\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(site))
    killed += [staging(unit=MIB), staging(unit=MIB)]
    for process in killed:
        assert process.wait(60) == 0, process.communicate()[1]
    check(folder)
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert hub.bytes_of("*.safetensors") == total
    leases = [path for path in Path(os.environ["HF_HUB_CACHE"]).rglob("*") if path.name.startswith("lease-")]
    assert leases == []


def test_ranges_alone_are_fetched_and_stay_good_when_the_file_becomes_whole(
    hub: LocalHub, folder: Path
) -> None:
    shards(folder, 1, 4 * MIB)
    data = (folder / SHARD.format(0)).read_bytes()
    source = opened()
    hub.forget()
    early = local_part(source, SHARD.format(0), 1000, 5000)
    assert hub.bytes_of("*.safetensors") == 4000
    assert early.stat().st_size == len(data)
    assert early.read_bytes()[1000:5000] == data[1000:5000]
    assert read_part(source, SHARD.format(0), 4000, 6000) == data[4000:6000]
    assert hub.bytes_of("*.safetensors") == 5000
    assert read_part(opened(), SHARD.format(0), 1000, 6000) == data[1000:6000], "another process, no request"
    assert hub.bytes_of("*.safetensors") == 5000
    assert not (source.stager.folder / SHARD.format(0)).exists(), "never taken for the whole file"
    whole = source.local_path(SHARD.format(0))
    assert hub.bytes_of("*.safetensors") == len(data)
    assert early.read_bytes() == whole.read_bytes() == data


def test_ranges_that_make_up_the_whole_file_complete_it(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, MIB)
    stager = opened().stager
    stager.ensure(SHARD.format(0), [(0, 500_000)])
    assert stager.whole(SHARD.format(0)) is None
    assert stager.ensure(SHARD.format(0), [(500_000, MIB)]) == stager.whole(SHARD.format(0))


def test_wanted_things_come_in_order(hub: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_work, "STREAMS", 1)
    shards(folder, 2, MIB)
    wanted = [
        Wanted(SHARD.format(1), [(500, 900), (100, 200)]),
        Wanted(SHARD.format(0), [(0, 50)]),
        Wanted(SHARD.format(0)),
        Wanted(SHARD.format(1)),
    ]
    source = opened()
    hub.forget()
    source.stager.stage(wanted)
    one, zero = SHARD.format(1), SHARD.format(0)
    assert hub.ranges == [
        (one, 500, 900), (one, 100, 200), (zero, 0, 50),
        (zero, 50, MIB), (one, 0, 100), (one, 200, 500), (one, 900, MIB),
    ]  # fmt: skip
    for name in (one, zero):
        assert source.local_path(name).read_bytes() == (folder / name).read_bytes()


def test_wrong_bytes_are_set_aside_and_fetched_once_more(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, MIB)
    source = opened()
    hub.fail("*/resolve/*.safetensors", spoil=True)
    assert source.local_path(SHARD.format(0)).read_bytes() == (folder / SHARD.format(0)).read_bytes()
    assert not list(Path(os.environ["HF_HUB_CACHE"]).rglob("rejected"))


@pytest.mark.parametrize("name", [SHARD.format(0), "tokenizer.json"])
def test_bytes_that_stay_wrong_are_never_used(hub: LocalHub, folder: Path, name: str) -> None:
    shards(folder, 1, MIB)
    (folder / "tokenizer.json").write_text("[]")
    source = opened()
    hub.fail(f"*/resolve/*/{name}", spoil=True, times=100)
    hub.forget()
    with pytest.raises(SourceError, match="E211") as caught:
        source.local_path(name)
    assert "hash" in caught.value.message
    assert hub.count(f"*/{name}") == 2
    assert not (source.stager.folder / name).exists()
    assert source.stager.whole(name) is None
    hub.faults.clear()
    assert source.local_path(name).read_bytes() == (folder / name).read_bytes()


def test_a_full_disk_is_told_before_the_first_byte(
    hub: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(folder, 3, MIB)
    source = opened()
    hub.forget()
    free = 2 * MIB + staging_work.SPARE
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(0, 0, free))
    with pytest.raises(SourceError, match="E210") as caught:
        source.stager.stage([Wanted(SHARD.format(index)) for index in range(3)])
    assert str(3 * MIB) in caught.value.message
    assert str(free) in caught.value.message
    assert "HF_HUB_CACHE" in caught.value.remedy
    assert hub.count() == 0
    source.stager.stage([Wanted(SHARD.format(index)) for index in range(2)])


def test_a_disk_that_fills_up_meanwhile_keeps_what_has_come(
    hub: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(folder, 1, 4 * MIB)
    source = opened()
    real = os.pwrite

    def pwrite(handle: int, data: memoryview, offset: int) -> int:
        if offset >= 2 * MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(SourceError, match="E210"):
        source.local_path(SHARD.format(0))
    monkeypatch.undo()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.forget()
    assert source.local_path(SHARD.format(0)).read_bytes() == (folder / SHARD.format(0)).read_bytes()
    assert 2 * MIB <= hub.bytes_of("*.safetensors") <= 2 * MIB + CUT


def test_a_cut_connection_costs_only_what_was_cut(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, 4 * MIB)
    source = opened()
    hub.forget()
    hub.fail("*/resolve/*.safetensors", cut_after=MIB, times=2)
    source.local_path(SHARD.format(0))
    check_file = source.stager.whole(SHARD.format(0))
    assert check_file is not None
    assert check_file.read_bytes() == (folder / SHARD.format(0)).read_bytes()
    assert hub.bytes_of("*.safetensors") == 4 * MIB


def test_another_content_under_the_same_name_starts_anew(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, MIB)
    opened().stager.ensure(SHARD.format(0), [(0, 1000)])
    (folder / SHARD.format(0)).write_bytes(content("new", MIB + 5))
    hub.add(MODEL, folder)
    path = opened().local_path(SHARD.format(0))
    assert path.read_bytes() == content("new", MIB + 5)


def test_a_blob_of_the_wrong_length_is_fetched_again(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, MIB)
    path = opened().local_path(SHARD.format(0))
    blob = path.resolve()
    os.truncate(blob, 100)
    fresh = opened().local_path(SHARD.format(0))
    assert fresh.read_bytes() == (folder / SHARD.format(0)).read_bytes()


def test_a_blob_that_is_here_is_linked_and_not_fetched(hub: LocalHub, folder: Path) -> None:
    shards(folder, 1, MIB)
    path = opened().local_path(SHARD.format(0))
    hub.repositories[MODEL].commit = hub.repositories[MODEL].refs["main"] = "c" * 40
    source = opened()
    hub.forget()
    again = source.local_path(SHARD.format(0))
    assert again != path
    assert again.resolve() == path.resolve()
    assert hub.bytes_of("*.safetensors") == 0


@pytest.mark.parametrize("missing", [("link",), ("symlink",), ("link", "symlink")])
def test_file_systems_without_links(
    hub: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    shards(folder, 1, MIB)
    for name in missing:
        monkeypatch.setattr(os, name, refuse)
    staging_probe.probe_folder.cache_clear()
    try:
        source = opened()
        path = source.local_path(SHARD.format(0))
        assert path == source.stager.folder / SHARD.format(0)
        assert path.read_bytes() == (folder / SHARD.format(0)).read_bytes()
        assert path.is_symlink() is ("symlink" not in missing)
        hub.forget()
        assert opened().local_path(SHARD.format(0)) == path
        assert hub.bytes_of("*.safetensors") == 0
    finally:
        staging_probe.probe_folder.cache_clear()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("")
    source = StubSource({"a.bin": b"x" * 10})
    place = StagingPlace(tmp_path / "file" / "cache", "r1")
    with pytest.raises(SourceError, match="E212") as caught:
        Stager("stub", source.files(), place, source.stream).ensure("a.bin")
    assert "HF_HUB_CACHE" in caught.value.remedy


def test_a_shared_cache_stays_writable_for_the_group(tmp_path: Path) -> None:
    shared = tmp_path / "models--org--x"
    shared.mkdir(mode=0o775)
    shared.chmod(0o2775)
    source = StubSource({"a.bin": bytes(2 * MIB)})
    stager = Stager("stub", source.files(), StagingPlace(shared, "r1"), source.stream)
    part = stager.ensure("a.bin", [(0, 10)])
    for path in [part, *part.parent.glob("journal-*"), part.parent / "locks"]:
        assert path.stat().st_mode & 0o777 == 0o664, path
    assert part.parent.stat().st_mode & 0o777 == 0o775
    assert part.parent.parent.stat().st_mode & 0o777 == 0o775


def test_parts_of_another_account_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = StubSource({"a.bin": b"x" * 10})
    place = StagingPlace(tmp_path, "r1")
    (tmp_path / staging_place.PARTS).mkdir()
    monkeypatch.setattr(os, "access", lambda *args: False)
    assert place.parts(source.files()[0]).parent.name == f"{staging_place.PARTS}-{os.getuid()}"
    assert Stager("stub", source.files(), place, source.stream).ensure("a.bin").read_bytes() == b"x" * 10


@pytest.mark.parametrize("path", ["../out.bin", "/etc/x", "a/../../b", "a\x00b", ""])
def test_a_path_that_leaves_the_release_has_no_place(tmp_path: Path, path: str) -> None:
    source = StubSource({path: b"x" * 10})
    with pytest.raises(SourceError, match="E201"):
        Stager("stub", source.files(), StagingPlace(tmp_path, "r1"), source.stream).ensure(path)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_ends_early_is_an_error_and_keeps_what_came(tmp_path: Path) -> None:
    source = StubSource({"a.bin": content("a", 2 * MIB)})
    source.end = MIB
    stager = Stager("stub", source.files(), StagingPlace(tmp_path, "r1"), source.stream)
    with pytest.raises(SourceError, match="E213"):
        stager.ensure("a.bin")
    source.end, source.given = 2 * MIB, 0
    assert stager.ensure("a.bin").read_bytes() == content("a", 2 * MIB)
    assert source.given == MIB


def test_a_source_that_gives_too_much_is_cut(tmp_path: Path) -> None:
    source = StubSource({"a.bin": content("a", MIB)})
    source.excess = b"more"
    stager = Stager("stub", source.files(), StagingPlace(tmp_path, "r1"), source.stream)
    assert stager.ensure("a.bin").read_bytes() == content("a", MIB)


def test_an_empty_file(tmp_path: Path) -> None:
    source = StubSource({"a.bin": b""})
    stager = Stager("stub", source.files(), StagingPlace(tmp_path, "r1"), source.stream)
    assert stager.ensure("a.bin").read_bytes() == b""
    assert stager.ensure("a.bin", [(0, 0)]).read_bytes() == b""


class StubSource:
    """Files in memory, with the faults of a bad server."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self.held = held
        self.end: int | None = None
        self.excess = b""
        self.given = 0

    def files(self) -> list[SourceFile]:
        return [
            SourceFile(path=path, size=len(data), identity=f"etag-{len(data)}")
            for path, data in self.held.items()
        ]

    def stream(self, path: str, start: int, stop: int) -> Iterator[bytes]:
        end = min(stop, self.end if self.end is not None else stop)
        for at in range(start, end, 65536):
            data = self.held[path][at : min(at + 65536, end)]
            self.given += len(data)
            yield data + (self.excess if at + 65536 >= end else b"")


def test_a_server_without_ranges_is_read_by_plain_streams(hub: LocalHub, folder: Path) -> None:
    for number in range(3):
        (folder / SHARD.format(number)).write_bytes(content(f"plain{number}", 5 * MIB))
    hub.add(MODEL, folder)
    hub.ignore_ranges = True
    source = open_source(MODEL)
    assert isinstance(source, HubSource)
    source.stager._unit = MIB
    source.stager.stage([Wanted(SHARD.format(number)) for number in range(3)])
    for number in range(3):
        held = source.stager.whole(SHARD.format(number))
        assert held is not None
        assert held.read_bytes() == content(f"plain{number}", 5 * MIB)
