"""Staging from an object store: nothing vouches for the content, so identity and length have to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from day0.adapters.base.errors import Day0Error
from day0.adapters.sources import object_store
from day0.adapters.sources.object_store import ObjectSource
from day0.adapters.sources.resolve import open_source
from support.clock import Clock
from support.object_server import BUCKET, ObjectServer

MIB = 2**20
URL = f"s3://{BUCKET}/org/staged"
NAME = "model.safetensors"


def content(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


@pytest.fixture
def server(object_server: ObjectServer, tmp_path: Path, clock: Clock) -> ObjectServer:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / NAME).write_bytes(content("one", 6 * MIB))
    object_server.put("org/staged", folder)
    object_server.forget()
    return object_server


def opened() -> ObjectSource:
    source = open_source(URL)
    assert isinstance(source, ObjectSource)
    return source


def served(server: ObjectServer) -> int:
    return server.served[f"/{BUCKET}/org/staged/{NAME}"]


def test_what_came_before_an_error_is_not_fetched_again(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ObjectSource._range

    def fails_late(self: ObjectSource, path: str, start: int, stop: int) -> bytes:
        if start >= 4 * MIB:
            raise Day0Error("the store went away")
        return real(self, path, start, stop)

    monkeypatch.setattr(object_store, "CHUNK", 2 * MIB)
    monkeypatch.setattr(ObjectSource.stream, "__kwdefaults__", {"chunk": 2 * MIB})
    monkeypatch.setattr(ObjectSource, "_range", fails_late)
    with pytest.raises(Day0Error, match="went away"):
        opened().local_path(NAME)
    assert served(server) == 4 * MIB
    monkeypatch.setattr(ObjectSource, "_range", real)
    assert opened().local_path(NAME).read_bytes() == content("one", 6 * MIB)
    assert served(server) == 6 * MIB


def test_another_object_of_that_name_is_another_file(server: ObjectServer) -> None:
    before = opened()
    part = before.stager.ensure(NAME, [(0, 1000)])
    assert part.read_bytes()[:1000] == content("one", 1000)
    server.client().put_object(Bucket=BUCKET, Key=f"org/staged/{NAME}", Body=content("two", 6 * MIB))
    after = opened()
    assert after.revision != before.revision
    assert after.local_path(NAME).read_bytes() == content("two", 6 * MIB)
