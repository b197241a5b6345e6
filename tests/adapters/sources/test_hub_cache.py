"""The hub's cache as huggingface_hub reads and writes it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download
from huggingface_hub._tree_cache import read_tree_cache

from day0.adapters.sources import hub, hub_settings
from day0.adapters.sources.hub_api import Entry
from day0.adapters.sources.hub_cache import HubCache, matches
from day0.adapters.sources.resolve import open_source
from support.local_hub import LocalHub

COMMIT = "c" * 40
DATA = b"tokens\n"
BLOB = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest()


def test_what_is_kept_is_found_by_huggingface_hub_without_network(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "vocab.txt").write_bytes(DATA)
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    commit = local_hub.add("org/model", folder).commit
    source = open_source("org/model")
    assert source.read("sub/vocab.txt") == DATA
    assert source.read("weights.bin") == b"w" * 1000
    local_hub.forget()
    cache = tmp_path / "hub-cache"
    found = hf_hub_download("org/model", "sub/vocab.txt", cache_dir=cache, local_files_only=True)
    assert Path(found).read_bytes() == DATA
    assert Path(found).is_symlink()
    assert Path(found).resolve().parent.name == "blobs"
    tree = read_tree_cache(str(cache / "models--org--model"), commit)
    assert tree is not None
    assert {path: entry.size for path, entry in tree.items()} == {"sub/vocab.txt": 7, "weights.bin": 1000}
    assert local_hub.count() == 0
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = open_source("org/model")
    assert offline.read("weights.bin", 10, 20) == b"w" * 10
    assert offline.files() == source.files()
    assert local_hub.count() == 0


def test_a_whole_file_costs_one_request_and_the_second_time_none(local_hub: LocalHub, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "vocab.txt").write_bytes(DATA)
    local_hub.add("org/model", folder)
    source = open_source("org/model")
    local_hub.forget()
    assert [source.read("vocab.txt") for _ in range(3)] == [DATA] * 3
    assert dict(local_hub.requests) == {("GET", f"/org/model/resolve/{source.revision}/vocab.txt"): 1}


def test_spoiled_content_is_fetched_once_more_and_then_refused(local_hub: LocalHub, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "vocab.txt").write_bytes(DATA)
    local_hub.add("org/model", folder)
    source = open_source("org/model")
    local_hub.fail("*/vocab.txt", spoil=True)
    assert source.read("vocab.txt") == DATA
    (tmp_path / "hub-cache" / "models--org--model" / "blobs" / BLOB).unlink()
    local_hub.fail("*/vocab.txt", spoil=True, times=2)
    with pytest.raises(Exception, match="E207"):
        source.read("vocab.txt")


def test_content_is_held_against_the_hash_that_the_listing_gives() -> None:
    sha256 = hashlib.sha256(DATA).hexdigest()
    assert matches(Entry("x", 7, BLOB), DATA)
    assert matches(Entry("x", 7, "f" * 40, sha256), DATA)  # git's hash is that of the pointer
    assert matches(Entry("x", 7, ""), DATA)
    assert not matches(Entry("x", 7, BLOB), b"Tokens\n")
    assert not matches(Entry("x", 7, BLOB, sha256), b"Tokens\n")
    assert not matches(Entry("x", 8, BLOB), DATA)


def test_names_that_leave_the_cache_are_not_written(tmp_path: Path) -> None:
    cache = HubCache(tmp_path / "cache", "org/model")
    cache.keep(COMMIT, "../../../escape", BLOB, DATA)
    cache.keep(COMMIT, "vocab.txt", "../../escape", DATA)
    cache.keep_ref("../../escape", COMMIT)
    assert not list(tmp_path.rglob("escape"))
    assert cache.trouble == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format_version": 2, "files": {}}', '{"format_version": 1, "files": []}',
     '{"format_version": 1, "files": {"a": {"size": "9"}}}', '{"format_version": 1, "files": {"a": 1}}',
     "[" * 10_000],
)  # fmt: skip
def test_a_damaged_listing_is_none(tmp_path: Path, text: str) -> None:
    cache = HubCache(tmp_path, "org/model")
    (tmp_path / "models--org--model" / "trees").mkdir(parents=True)
    (tmp_path / "models--org--model" / "trees" / f"{COMMIT}.json").write_text(text)
    assert cache.listing(COMMIT) is None


def test_a_listing_comes_back_as_it_was(tmp_path: Path) -> None:
    entries = [Entry("a", 0, "a" * 40), Entry("b", 5, "b" * 40, "c" * 64, "d" * 64)]
    cache = HubCache(tmp_path, "org/model")
    cache.keep_listing(COMMIT, entries)
    assert cache.listing(COMMIT) == entries


def test_settings_follow_the_documented_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert hub_settings.endpoint() == "https://huggingface.co"
    assert hub_settings.cache() == tmp_path / "hub"
    assert hub_settings.token() is None
    (tmp_path / "token").write_text(" hf_file\n")
    assert hub_settings.token() == "hf_file"
    monkeypatch.setenv("HF_TOKEN", "hf_env\r\n")
    assert hub_settings.token() == "hf_env"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert hub_settings.token() is None
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    assert hub_settings.offline()


def test_ten_thousand_files_come_in_pages(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "vocab.txt").write_bytes(DATA)
    repository = local_hub.add("org/model", folder)
    many = {f"f{number:05}": folder / "vocab.txt" for number in range(10_500)}
    monkeypatch.setattr(type(repository), "files", lambda _: many)
    monkeypatch.setattr(hub, "_LISTED", {})
    local_hub.page = 1000
    source = open_source("org/model")
    assert [file.path for file in source.files()] == list(many)
    assert local_hub.count("*/tree/*") == 11
    assert local_hub.count() == 12


def test_a_branch_that_moved_is_told_with_one_request(local_hub: LocalHub, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "vocab.txt").write_bytes(DATA)
    repository = local_hub.add("org/model", folder)
    repository.refs["v1"] = repository.commit
    branch, tag = open_source("org/model"), open_source("org/model@v1")
    assert isinstance(branch, hub.HubSource)
    assert isinstance(tag, hub.HubSource)
    assert branch.moved() is None
    repository.refs["main"] = repository.commit = "d" * 40
    local_hub.forget()
    moved = branch.moved()
    assert moved is not None
    assert (moved.code, moved.subject) == ("revision_moved", "main")
    assert branch.revision in moved.message
    assert "d" * 40 in moved.message
    assert local_hub.count() == 1
    repository.refs["v1"] = branch.revision
    assert tag.moved() is None
    local_hub.fail("*", status=429, times=100, headers={"Retry-After": "60"})
    assert branch.moved() is None
