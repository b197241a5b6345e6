"""Object stores as sources: a real S3 server on loopback, and fsspec's store in memory."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from day0.adapters.base.errors import AccessError, InputError, SourceError
from day0.adapters.base.source import Source
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources import object_store
from day0.adapters.sources.resolve import open_source
from day0.flows.cli import main
from support.clock import Clock
from support.object_server import BUCKET, ObjectServer
from support.raw_checkpoints import write_sharded

pytestmark = pytest.mark.usefixtures("clock")

URL = f"s3://{BUCKET}/org/model"
WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    (folder / "code").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "code" / "model.py").write_text("")
    write_sharded(folder, {f"t{number}": ("BF16", (256, 256)) for number in range(4)}, 2)
    return folder


@pytest.fixture
def server(object_server: ObjectServer, folder: Path) -> ObjectServer:
    object_server.put("org/model", folder)
    object_server.put("org/model-2", folder)
    object_server.client().put_object(Bucket=BUCKET, Key="org/model/empty-folder/", Body=b"")
    object_server.forget()
    return object_server


def test_objects_are_listed_with_sizes_and_identities(server: ObjectServer, folder: Path) -> None:
    source = open_source(URL)
    places = {place.relative_to(folder).as_posix(): place for place in folder.rglob("*") if place.is_file()}
    assert {file.path: file.size for file in source.files()} == {
        path: place.stat().st_size for path, place in places.items()
    }
    assert len({file.identity for file in source.files()}) == len(places)
    assert server.count() == 1
    assert open_source(URL + "/").revision == source.revision


def test_the_revision_follows_the_content(server: ObjectServer) -> None:
    before = open_source(URL)
    server.client().put_object(Bucket=BUCKET, Key="org/model/config.json", Body=b'{"model_type": "mamba"}')
    after = open_source(URL)
    assert after.revision != before.revision
    changed = {a.path for a, b in zip(after.files(), before.files(), strict=True) if a != b}
    assert changed == {"config.json"}


def test_ranges_cost_exactly_their_bytes(server: ObjectServer, folder: Path) -> None:
    source = open_source(URL)
    server.forget()
    data = (folder / WEIGHTS).read_bytes()
    assert source.read(WEIGHTS, 5, 15) == data[5:15]
    assert source.read(WEIGHTS, len(data) - 3, len(data) + 50) == data[-3:]
    assert source.read(WEIGHTS, len(data)) == source.read("code/model.py") == b""
    assert source.read("config.json") == (folder / "config.json").read_bytes()
    assert server.served[f"/{BUCKET}/org/model/{WEIGHTS}"] == 13
    assert server.count() == 3
    with pytest.raises(SourceError, match="E202"):
        source.read(WEIGHTS, len(data) + 1)
    with pytest.raises(SourceError, match="E201"):
        source.read("missing")


def test_a_stream_comes_in_order(server: ObjectServer, folder: Path) -> None:
    source = open_source(URL)
    assert isinstance(source, object_store.ObjectSource)
    parts = list(source.stream(WEIGHTS, 3, 1003, chunk=300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    assert b"".join(parts) == (folder / WEIGHTS).read_bytes()[3:1003]


def test_many_threads_read_at_once(server: ObjectServer, folder: Path) -> None:
    source, data = open_source(URL), (folder / WEIGHTS).read_bytes()
    with ThreadPoolExecutor(32) as pool:
        read = list(pool.map(lambda start: source.read(WEIGHTS, start, start + 8), range(64)))
    assert read == [data[start : start + 8] for start in range(64)]


def test_a_release_opens_from_headers_alone(server: ObjectServer) -> None:
    release = open_release(URL)
    assert release.checkpoint.anomalies == ()
    assert len(release.checkpoint.tensors) == 4
    shards = sum(size for path, size in server.served.items() if path.endswith(".safetensors"))
    assert shards == release.checkpoint.header_bytes


def test_a_busy_store_and_cut_connections_are_waited_out(
    server: ObjectServer, clock: Clock, folder: Path
) -> None:
    source = open_source(URL)
    server.fail("*/config.json", code="SlowDown", times=2)
    server.fail(f"*/{WEIGHTS}", cut_after=7)
    assert source.read("config.json") == (folder / "config.json").read_bytes()
    assert clock.about([0.5, 1.0])
    assert source.read(WEIGHTS, 5, 105) == (folder / WEIGHTS).read_bytes()[5:105]


def test_trying_again_is_bounded_and_follows_the_hint(server: ObjectServer, clock: Clock) -> None:
    source = open_source(URL)
    server.fail("*/config.json", code="SlowDown", times=100, headers={"Retry-After": "7"})
    server.forget()
    with pytest.raises(InputError, match="E144"):
        source.read("config.json")
    assert server.count() == 5
    assert clock.about([7.0] * 4)


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [("AccessDenied", 403, "E142"), ("InvalidAccessKeyId", 403, "E142"), ("NoSuchBucket", 404, "E141")],
)
def test_refusals_of_the_listing_are_told_apart(
    server: ObjectServer, code: str, status: int, expected: str
) -> None:
    server.fail(f"/{BUCKET}*", code=code, status=status)
    with pytest.raises(InputError, match=expected) as caught:
        open_source(URL)
    assert not isinstance(caught.value, AccessError)


def test_what_is_not_there(object_server: ObjectServer) -> None:
    with pytest.raises(InputError, match=r"there is nothing at .*E141"):
        open_source(URL)
    with pytest.raises(InputError, match=r"no bucket for .*E141"):
        open_source("s3://no-such-bucket/model")


def test_a_listing_without_access_to_the_objects_is_still_a_record(server: ObjectServer) -> None:
    server.fail("*/org/model/*", code="AccessDenied", status=403, times=100)
    checkpoint = open_release(URL).checkpoint
    assert [anomaly.code for anomaly in checkpoint.anomalies] == ["listing_only"]
    assert len(checkpoint.shards) == 2


def test_without_credentials_or_connection(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(InputError, match=r"cannot be reached.*E144"):
        open_source(URL)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(InputError, match=r"no credentials.*E143"):
        open_source(URL)


def test_no_secret_is_repeated(server: ObjectServer) -> None:
    with pytest.raises(InputError, match="E145") as caught:
        open_source("s3://key:hidden@bucket/model")
    assert "hidden" not in str(caught.value)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setattr(sys.modules["fsspec.registry"], "registry", {})
    with pytest.raises(InputError, match=r"E140.*day0\[s3\]"):
        open_source(URL)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (f"{URL}@v1", "E135"),
        ("https://example.invalid/models/x/", "E146"),
        ("https://huggingface.co/datasets/org/set", "E146"),
        ("shelf://x/y", "E132"),
        ("s3://", "E104"),
        ("zip://nowhere.zip", "E104"),
    ],
)
def test_addresses_that_cannot_be_used(model: str, code: str) -> None:
    with pytest.raises(InputError, match=code):
        open_source(model)


def test_a_run_is_pinned_to_one_state(server: ObjectServer) -> None:
    pinned = open_source(URL).revision
    assert open_source(URL, pinned).revision == pinned
    server.client().put_object(Bucket=BUCKET, Key="org/model/new.json", Body=b"{}")
    with pytest.raises(InputError, match="E147"):
        open_source(URL, pinned)


def test_the_command_line_takes_an_address(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inventory", URL, "--json"]) in (0, 1)
    record = json.loads(capfd.readouterr().out)
    assert record["totals"]["tensors"] == 4
    assert record["identity"]["model"] == URL


def test_an_object_that_changes_while_it_is_read_is_told(server: ObjectServer) -> None:
    source = open_source(URL)
    assert isinstance(source, object_store.ObjectSource)
    assert source.moved() is None
    server.client().put_object(Bucket=BUCKET, Key="org/model/new.json", Body=b"{}")
    moved = source.moved()
    assert moved is not None
    assert (moved.code, moved.subject) == ("revision_moved", "new.json")
    server.fail(f"/{BUCKET}*", code="SlowDown", times=100)
    assert source.moved() is None


def test_a_staged_object_is_a_file(server: ObjectServer, folder: Path) -> None:
    source = open_source(URL)
    path = source.local_path(WEIGHTS)
    assert path.read_bytes() == (folder / WEIGHTS).read_bytes()
    server.forget()
    assert source.local_path(WEIGHTS) == path
    assert server.count() == 0


@pytest.fixture
def in_memory(folder: Path) -> Iterator[Source]:
    import fsspec

    store = fsspec.filesystem("memory")
    for place in folder.rglob("*"):
        if place.is_file():
            store.pipe(f"/shelf/{place.relative_to(folder).as_posix()}", place.read_bytes())
    store.pipe("/shelf/../escape", b"x")
    yield open_source("memory://shelf")
    store.rm("/shelf", recursive=True)


def test_any_other_store_of_fsspec(in_memory: Source, folder: Path) -> None:
    assert in_memory.read(WEIGHTS, 8, 20) == (folder / WEIGHTS).read_bytes()[8:20]
    assert len(in_memory.files()) == 5
    assert len(open_release("memory://shelf").checkpoint.tensors) == 4
