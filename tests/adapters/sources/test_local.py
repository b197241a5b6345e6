"""Folders as sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError, SourceError
from day0.adapters.sources.local import LocalSource, open_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "weights.bin").write_bytes(bytes(range(100)))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("x")
    return tmp_path


def test_files_are_listed_sorted_without_hidden_folders(folder: Path) -> None:
    source = LocalSource(folder)
    sizes = {file.path: file.size for file in source.files()}
    assert list(sizes.items()) == [("config.json", 2), ("sub/weights.bin", 100)]
    assert source.name == str(folder)
    assert source.anomalies == ()


def test_ranges_are_exact(folder: Path) -> None:
    source = LocalSource(folder)
    assert source.read("sub/weights.bin", 10, 13) == bytes([10, 11, 12])
    assert source.read("sub/weights.bin", 98, 200) == bytes([98, 99])
    assert source.read("sub/weights.bin") == bytes(range(100))
    assert source.local_path("sub/weights.bin").read_bytes() == bytes(range(100))
    with pytest.raises(SourceError, match="E202"):
        source.read("sub/weights.bin", 101)


@pytest.mark.parametrize("path", ["missing", "../x", "sub", ".git/HEAD"])
def test_only_listed_files_are_read(folder: Path, path: str) -> None:
    with pytest.raises(SourceError, match="E201"):
        LocalSource(folder).read(path)


def test_revision_follows_content_and_nothing_else(folder: Path) -> None:
    before = LocalSource(folder)
    assert LocalSource(folder).revision == before.revision
    (folder / "config.json").write_text("[]")
    os.utime(folder / "config.json", ns=(5, 5))
    after = LocalSource(folder)
    assert after.revision != before.revision
    identities = [{file.path: file.identity for file in source.files()} for source in (before, after)]
    assert {path for path in identities[0] if identities[0][path] != identities[1][path]} == {"config.json"}


def test_links_are_followed_only_inside(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("secret")
    (folder / "inside").symlink_to("sub/weights.bin")
    (folder / "outside").symlink_to(outside)
    (folder / "nowhere").symlink_to("missing")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").symlink_to(outside.parent)
    source = LocalSource(folder)
    assert [file.path for file in source.files()] == ["config.json", "inside", "sub/weights.bin"]
    assert [anomaly.subject for anomaly in source.anomalies] == ["folder", "loop", "nowhere", "outside"]
    assert {anomaly.code for anomaly in source.anomalies} == {"link_leaves_release"}


def test_a_snapshot_of_the_hub_cache_may_link_into_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / ("b" * 64)).write_text("weights")
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{'b' * 64}")
    (tmp_path / "elsewhere").write_text("x")
    (snapshot / "stolen").symlink_to(tmp_path / "elsewhere")
    source = LocalSource(snapshot)
    assert [(file.path, file.identity, file.sha256) for file in source.files()] == [
        ("model.safetensors", "b" * 64, "b" * 64)
    ]
    assert [anomaly.subject for anomaly in source.anomalies] == ["stolen"]


def test_what_is_no_file_is_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe" not in [file.path for file in LocalSource(folder).files()]


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("/no/such/folder", "E101"),
        ("./missing", "E101"),
        ("~nobody-of-that-name/x", "E101"),
        ("a/b/c", "E101"),
        ("/" + "x" * 5000, "E101"),
    ],
)
def test_a_missing_folder_is_said_to_be_missing(model: str, code: str) -> None:
    with pytest.raises(InputError, match=code):
        open_source(model)


def test_a_file_is_not_a_folder_and_a_folder_has_no_revision(folder: Path) -> None:
    with pytest.raises(InputError, match="E104"):
        open_source(str(folder / "sub" / "weights.bin"))
    with pytest.raises(InputError, match="E135"):
        open_source(str(folder), "main")


@pytest.mark.parametrize("model", ["org/name", "name", "s3://bucket/deep/er/path"])
def test_names_of_other_sources_are_left_to_them(model: str) -> None:
    assert open_source(model) is None
