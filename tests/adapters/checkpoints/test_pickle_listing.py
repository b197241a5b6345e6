"""Pickles listed by ranges and within bounds: containers, hidden names, damage, bombs."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints import pickle_archive, pickle_opcodes
from day0.adapters.checkpoints.pickle_globals import is_plain, runs_commands
from day0.adapters.checkpoints.pickle_listing import PickleListing, list_pickle
from support.raw_pickles import COMPUTED, PLAIN, SYSTEM, torch_archive, torch_stream


class Bytes:
    """A source of one file that counts what is asked for."""

    name, revision = "test", "0"
    anomalies: Sequence[Anomaly] = ()

    def __init__(self, data: bytes, hole: int = 0) -> None:
        self.data, self.hole, self.asked = data, hole, 0

    def files(self) -> list[SourceFile]:
        return [SourceFile(path="model.bin", size=len(self.data) + self.hole, identity="0")]

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """A file whose first pickle is followed by a hole, the rest at its end."""
        assert stop is not None
        assert 0 <= start < stop <= len(self.data) + self.hole
        self.asked += stop - start
        assert self.asked < 64_000_000
        if not self.hole:
            return self.data[start:stop]
        return (
            bytes(stop - start)
            if start >= len(self.data)
            else self.data[start:stop].ljust(stop - start, b"\0")
        )

    def local_path(self, path: str) -> Path:
        raise FileNotFoundError(path)


def listing(data: bytes) -> PickleListing:
    source = Bytes(data)
    return list_pickle(source, source.files()[0])


@pytest.mark.parametrize(
    ("data", "container"),
    [(PLAIN, "bare"), (torch_archive(PLAIN), "zip"), (torch_archive(PLAIN, packed=True), "zip"),
     (torch_stream(PLAIN), "legacy")],
)  # fmt: skip
def test_plain_weights_in_every_container(data: bytes, container: str) -> None:
    found = listing(data)
    assert (found.container, found.error, list(found.foreign), found.code) == (container, "", [], False)
    assert list(found.globals) == [
        "collections.OrderedDict",
        "torch.FloatStorage",
        "torch._utils._rebuild_tensor_v2",
    ]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_protocol_are_plain(protocol: int) -> None:
    found = listing(pickle.dumps({"a": np.arange(9), "b": {1, 2}, "c": 1.5}, protocol=protocol))
    assert (found.error, list(found.foreign)) == ("", [])


@pytest.mark.parametrize(
    "data",
    [
        SYSTEM,
        COMPUTED,
        b"S'o\\x73'\nS'sys\\x74em'\n\x93.",  # names behind escapes
        b"\x80\x04V\\u006fs\n\x8c\x06system\x93.",
        b"(S'touch gotcha'\nios\nsystem\n.",  # INST of protocol 0
        b"\x80\x04\x8c\x02os\x940\x8c\x03abch\x00\x8c\x06system\x93.",  # through the memo after a POP
        b"\x80\x04\x8c\x02os2\x8c\x06system\x93.",  # DUP
    ],
)
def test_names_are_found_however_they_are_put_together(data: bytes) -> None:
    found = listing(data)
    assert found.commands in (("os.system",), ("posix.system",))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04c_codecs\nencode\n\x8c\x02os\x85R\x8c\x06system\x93.",  # a name computed at run time
        b"\x80\x02\x82\x01.",  # an extension of copyreg
    ],
)
def test_names_that_only_running_would_tell_are_foreign(data: bytes) -> None:
    assert listing(data).foreign


def test_names_met_before_the_damage_count() -> None:
    found = listing(SYSTEM[:-1] + b"\xff\xff")
    assert found.commands == ("posix.system",)
    assert "no opcode" in found.error


def test_every_part_of_a_name_counts() -> None:
    assert runs_commands("torch.serialization.os.system")
    assert not is_plain("torch.FloatStorage.os.system")
    assert not is_plain(f"torch.Complex{'x' * 300}Storage.os.system"[:200] + "...")
    assert is_plain("numpy._core.multiarray._reconstruct")
    assert not runs_commands("acme.model.Net")
    assert runs_commands("builtins.getattr")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git-lfs pointer"),
        (b"7z\xbc\xaf" + bytes(90), "a 7z archive"),
        (torch_archive(PLAIN)[:-40], "without a directory"),
        (PLAIN[:-3], "ends at byte"),
        (torch_archive(PLAIN, "archive/other"), "without a pickle"),
        (b"\x80\x04\x8c\x01aq\x00\x94.", "in two ways"),
    ],
)
def test_what_cannot_be_listed_says_why(data: bytes, error: str) -> None:
    assert error in listing(data).error


@pytest.mark.parametrize("data", [b"", bytes(4096), np.linspace(0, 1, 500).tobytes(), b"\x89HDF\r\n"])
def test_numbers_are_no_pickle(data: bytes) -> None:
    found = listing(data)
    assert (found.container, found.error, list(found.globals)) == ("", "", [])


def test_payloads_are_skipped_and_not_fetched() -> None:
    head = b"\x80\x04\x8e" + (5_000_000_000).to_bytes(8, "little")
    source = Bytes(head, hole=5_000_000_001)
    found = list_pickle(source, source.files()[0])
    assert source.asked < 2_500_000
    assert found.size == 5_000_000_012
    assert found.error  # the hole ends without a STOP


def test_bombs_stay_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_opcodes, "MAX_OPCODES", 1000)
    monkeypatch.setattr(pickle_archive, "MAX_UNPACKED", 10_000)
    assert "more than 1000 opcodes" in listing(b"\x80\x02" + b"N0" * 1000 + b".").error
    assert "unpacks to more than" in listing(torch_archive(bytes(100_000), packed=True)).error
    monkeypatch.setattr(pickle_archive, "MAX_DIRECTORY", 20)
    assert "archive directory of" in listing(torch_archive(PLAIN)).error


def test_two_directories_that_disagree_are_refused() -> None:
    data = torch_archive(SYSTEM)
    where = data.index(b"archive/data.pkl")
    assert "name different files" in listing(data[:where] + b"archive/fine.pkl" + data[where + 16 :]).error


def test_an_archive_in_the_archive_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("a/data.pkl", PLAIN)
        archive.writestr("a/inner.pt", torch_archive(SYSTEM))
    assert "archive within the archive" in listing((tmp_path / "x").read_bytes()).error


@settings(max_examples=150, deadline=2000)
@given(
    st.one_of(
        st.binary(max_size=400),
        st.binary(max_size=200).map(lambda tail: b"\x80\x04" + tail),
        st.tuples(st.sampled_from([PLAIN, SYSTEM, COMPUTED, torch_archive(PLAIN), torch_stream(SYSTEM)]),
                  st.integers(0, 400), st.binary(max_size=8)).map(
                      lambda p: p[0][: p[1]] + p[2] + p[0][p[1] + 4 :]
                  ),
    )
)  # fmt: skip
def test_any_bytes_end_in_a_listing(data: bytes) -> None:
    found = listing(data)
    assert found.size == len(data)
