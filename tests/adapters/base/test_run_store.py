from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore


def test_what_is_written_is_read_listed_and_removed(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "st ore")
    assert store.list("a") == []
    assert Path(store.write("a/b/c.json", b"1")).read_bytes() == b"1"
    store.write("a/b/c.json", b"2")
    assert store.read("a/b/c.json") == b"2"
    assert store.list("a/b") == ["c.json"]
    store.remove("a")
    assert not store.exists("a/b/c.json")
    with pytest.raises(FileNotFoundError):
        store.read("a/b/c.json")


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    store.write("x", b"old")

    def torn(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", torn)
    with pytest.raises(InputError, match=r"No space left on device \[E121\]"):
        store.write("x", b"new")
    assert store.read("x") == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\\b"])
def test_a_name_that_leaves_the_store_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leaves the store"):
        RunStore(tmp_path / "in").write(name, b"")


def test_a_store_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nope")):
        with pytest.raises(InputError, match="E121"):
            RunStore(root).write("records/x", b"")
    with pytest.raises(InputError, match="E120"):
        RunStore("nosuchscheme://bucket")
