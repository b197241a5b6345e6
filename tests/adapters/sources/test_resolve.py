"""Which source takes a name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.sources import resolve
from day0.adapters.sources.local import LocalSource


def test_a_revision_is_split_off_and_an_existing_path_stays_whole(tmp_path: Path) -> None:
    assert resolve.split_revision("org/name@v1") == ("org/name", "v1")
    assert resolve.split_revision("org/name@refs/pr/3") == ("org/name", "refs/pr/3")
    assert resolve.split_revision("org/name", "v2") == ("org/name", "v2")
    assert resolve.split_revision("s3://key@bucket/model") == ("s3://key@bucket/model", None)
    assert resolve.split_revision("s3://key@bucket/model@v1") == ("s3://key@bucket/model", "v1")
    (tmp_path / "a@b").mkdir()
    assert resolve.split_revision(str(tmp_path / "a@b")) == (str(tmp_path / "a@b"), None)


CASES = [("a@v1", "v2", "E135"), ("", None, "E104"), ("@v", None, "E104")]


@pytest.mark.parametrize(("model", "revision", "code"), CASES)
def test_contradictions_and_empty_names_are_refused(model: str, revision: str | None, code: str) -> None:
    with pytest.raises(InputError, match=code):
        resolve.split_revision(model, revision)


def test_an_existing_folder_wins_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(resolve.open_source("org/name"), LocalSource)


def test_a_plugin_is_asked_before_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = [
        EntryPoint("local", "day0.adapters.sources.local:open_source", resolve.GROUP),
        EntryPoint("hub", "day0.adapters.sources.hub:open_source", resolve.GROUP),
        EntryPoint("archive", "support.archive_source:open_source", resolve.GROUP),
    ]
    monkeypatch.setattr(resolve, "entry_points", lambda group: EntryPoints(points))
    source = resolve.open_source("archive://shelf/model@v7")
    assert (source.name, source.revision) == ("archive://shelf/model", "v7")


def test_a_url_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="E132"):
        resolve.open_source("archive://shelf/model")
