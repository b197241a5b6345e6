"""Whole checkpoints of safetensors shards: what is read, and what is said of each kind of damage."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.open import open_checkpoint
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources.local import LocalSource
from support.layouts import truth
from support.raw_checkpoints import Layout, header_of, write_filled, write_index, write_raw, write_sharded
from support.shared_checkpoints import MakeFolder

LAYOUT: dict[str, tuple[str, Sequence[int]]] = {
    f"model.layers.{layer}.{part}.weight": ("BF16", (4, 8)) for layer in range(12) for part in ("a", "b")
}


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(LocalSource(folder))


def codes(checkpoint: Checkpoint) -> list[str]:
    return [anomaly.code for anomaly in checkpoint.anomalies]


def edit_index(folder: Path, **changes: str | None) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    for name, file in changes.items():
        if file is None:
            del index["weight_map"][name]
        else:
            index["weight_map"][name] = file
    path.write_text(json.dumps(index))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sharded(tmp_path, LAYOUT, 3)
    return tmp_path


def test_a_whole_checkpoint_is_read_without_remark(folder: Path) -> None:
    checkpoint = opened(folder)
    assert (checkpoint.format, codes(checkpoint)) == ("safetensors", [])
    assert set(checkpoint.tensors) == set(LAYOUT)
    assert checkpoint.shards == tuple(f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    name = "model.layers.7.b.weight"
    info = checkpoint.tensors[name]
    assert (info.dtype, tuple(info.shape), info.bytes, info.elements) == ("bf16", (4, 8), 64, 32)
    data = (folder / info.file).read_bytes()
    assert checkpoint.read(name) == data[info.offset : info.offset + 64]
    assert checkpoint.path(name) == folder / info.file
    held = sum(8 + int.from_bytes((folder / shard).read_bytes()[:8], "little") for shard in checkpoint.shards)
    assert checkpoint.header_bytes == held


def test_values_are_those_that_transformers_wrote(tiny_checkpoint: MakeFolder) -> None:
    import torch
    from safetensors import safe_open

    folder = tiny_checkpoint("llama")
    checkpoint = opened(folder)
    assert codes(checkpoint) == []
    for name, info in checkpoint.tensors.items():
        with safe_open(folder / info.file, framework="pt") as file:
            assert checkpoint.read(name) == file.get_tensor(name).view(torch.uint8).numpy().tobytes()


def test_identity_changes_with_the_file_alone(folder: Path) -> None:
    before = opened(folder)
    first, last = before.shards[0], before.shards[-1]
    with (folder / first).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(folder / first, ns=(1, 1))
    after = opened(folder)
    changed = {name for name in LAYOUT if before.identity(name) != after.identity(name)}
    assert changed == {name for name in LAYOUT if before.tensors[name].file == first}
    assert last not in {before.tensors[name].file for name in changed}


def test_a_truncated_shard_is_named_with_its_bytes_and_the_others_stay_usable(folder: Path) -> None:
    shard = folder / "model-00002-of-00003.safetensors"
    whole = shard.stat().st_size
    os.truncate(shard, whole - 100)
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["truncated_shard"]
    assert f"{whole - 100:,} bytes" in checkpoint.anomalies[0].message
    assert f"promises {whole:,}: 100 are missing" in checkpoint.anomalies[0].message
    assert len(checkpoint.tensors) == len(LAYOUT)
    end = whole - 100
    lost = [name for name, info in checkpoint.tensors.items() if info.file == shard.name]
    lost = [name for name in lost if checkpoint.tensors[name].offset + 64 > end]
    assert len(lost) == 2
    for name in checkpoint.tensors:
        if name not in lost:
            assert len(checkpoint.read(name)) == 64
            continue
        with pytest.raises(CheckpointError, match="E301"):
            checkpoint.read(name)


def test_bytes_after_the_last_tensor_are_counted(folder: Path) -> None:
    with (folder / "model-00003-of-00003.safetensors").open("ab") as file:
        file.write(b"xyz")
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["trailing_bytes"]
    assert " 3 bytes" in checkpoint.anomalies[0].message


def test_index_and_headers_are_held_against_each_other(folder: Path) -> None:
    edit_index(folder, **{
        "model.mtp.weight": "model-00001-of-00003.safetensors",
        "model.layers.0.a.weight": None,
        "model.layers.0.b.weight": "model-00003-of-00003.safetensors",
    })  # fmt: skip
    checkpoint = opened(folder)
    assert {(anomaly.code, anomaly.subject) for anomaly in checkpoint.anomalies} == {
        ("index_only_tensor", "model.mtp.weight"),
        ("header_only_tensor", "model.layers.0.a.weight"),
        ("index_wrong_shard", "model.layers.0.b.weight"),
    }
    assert set(checkpoint.tensors) == set(LAYOUT)


def test_a_missing_shard_is_named_with_the_tensors_it_takes_along(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()
    checkpoint = opened(folder)
    (anomaly,) = [anomaly for anomaly in checkpoint.anomalies if anomaly.code == "missing_shard"]
    assert anomaly.subject == "model-00002-of-00003.safetensors"
    assert "8 tensors" in anomaly.message
    assert len(checkpoint.tensors) == 16


def test_a_missing_shard_shows_by_the_names_when_the_index_is_silent(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()
    (folder / "model.safetensors.index.json").unlink()
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["missing_shard", "no_index"]
    assert checkpoint.anomalies[0].subject == "model#2"


@pytest.mark.parametrize("numbers", [range(413), range(414)])
def test_numbering_may_start_at_zero_and_end_at_either_number(tmp_path: Path, numbers: range) -> None:
    layouts: list[Layout] = [{f"t{number}": ("U8", (1,))} for number in numbers]
    for number, layout in zip(numbers, layouts, strict=True):
        write_filled(tmp_path / f"model-{number:05d}-of-00413.safetensors", layout)
    assert codes(opened(tmp_path)) == ["no_index"]


def test_shards_are_in_natural_order_without_zero_padding(tmp_path: Path) -> None:
    for number in (1, 2, 10, 11):
        write_filled(tmp_path / f"model-{number}-of-61.safetensors", {f"t{number}": ("U8", (1,))})
    assert [shard.split("-")[1] for shard in opened(tmp_path).shards] == ["1", "2", "10", "11"]


def test_a_tensor_in_two_shards_is_taken_where_the_index_says(tmp_path: Path) -> None:
    write_filled(
        tmp_path / "model-00001-of-00002.safetensors", {"twice": ("U8", (4,)), "x": ("U8", (1,))}, "one"
    )
    write_filled(
        tmp_path / "model-00002-of-00002.safetensors", {"twice": ("U8", (4,)), "y": ("U8", (1,))}, "two"
    )
    assert opened(tmp_path).tensors["twice"].file == "model-00001-of-00002.safetensors"
    second = "model-00002-of-00002.safetensors"
    write_index(tmp_path, {"twice": second, "x": "model-00001-of-00002.safetensors", "y": second}, 10)
    checkpoint = opened(tmp_path)
    assert checkpoint.tensors["twice"].file == second
    (anomaly,) = [anomaly for anomaly in checkpoint.anomalies if anomaly.code == "duplicate_tensor"]
    assert "the same dtype and shape" in anomaly.message
    assert second in anomaly.message


def test_a_number_left_out_of_a_row_without_a_total_is_a_shard_that_is_not_there(folder: Path) -> None:
    numbers = {1: 1, 2: 2, 3: 4}
    for old, new in numbers.items():
        (folder / f"model-0000{old}-of-00003.safetensors").rename(folder / f"model-0000{new}.safetensors")
    index = folder / "model.safetensors.index.json"
    held = json.loads(index.read_text())["weight_map"]
    index.write_text(
        json.dumps({"weight_map": {
            name: f"model-0000{numbers[int(file[10])]}.safetensors" for name, file in held.items()
        }})
    )  # fmt: skip
    assert codes(opened(folder)) == []  # the index knows of no other
    index.unlink()
    missing = opened(folder).anomalies[0]
    assert (missing.code, missing.subject) == ("missing_shard", "model#3")


UNUSABLE = (
    "<<<<<<< HEAD\n{}",
    "[]",
    '{"weight_map": {}}',
    '{"weight_map": {"a": 1}}',
    '{"a": 1, "a": 2}',
    "\xff",
)


@pytest.mark.parametrize("text", UNUSABLE)
def test_an_unusable_index_leaves_the_headers(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["index_invalid", "no_index"]
    assert len(checkpoint.tensors) == len(LAYOUT)


def test_a_stale_index_is_told_from_an_unfinished_download(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    weight_map = {"a": "other-1-of-9.safetensors", "b": "other-2-of-9.safetensors"}
    index.write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["stale_index", "no_index"]
    assert len(checkpoint.tensors) == len(LAYOUT)


def test_an_index_of_other_tensors_in_files_of_the_same_names_is_stale(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    held = json.loads(index.read_text())["weight_map"]
    packed = {name.replace(".weight", ".qweight"): file for name, file in held.items()}
    index.write_text(json.dumps({"weight_map": packed}))
    checkpoint = opened(folder)
    assert (codes(checkpoint), list(checkpoint.faults), checkpoint.index) == (["stale_index"], [], None)
    assert len(checkpoint.tensors) == len(LAYOUT)

    index.write_text(json.dumps({"weight_map": {**packed, next(iter(held)): next(iter(held.values()))}}))
    assert "stale_index" not in codes(opened(folder))  # one tensor of the same name: faults, one by one


LEAVING = ("../secret.safetensors", "/etc/passwd", "a/../../b", "C:x", "x\\y", "", "a//b")


@pytest.mark.parametrize("file", LEAVING)
def test_paths_in_the_index_that_leave_the_folder_are_refused(folder: Path, file: str) -> None:
    edit_index(folder, stolen=file)
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["index_path_escape"]
    assert "stolen" not in checkpoint.tensors


def test_a_link_out_of_the_folder_is_not_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shard = folder / "model-00001-of-00003.safetensors"
    outside = tmp_path_factory.mktemp("outside") / "x.safetensors"
    shard.rename(outside)
    shard.symlink_to(outside)
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["link_leaves_release", "missing_shard"]
    assert shard.name not in checkpoint.shards


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_pointer_instead_of_weights_says_what_it_points_to(folder: Path, end: str) -> None:
    lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{'ab' * 32}", "size 4302350824", "")
    (folder / "model-00001-of-00003.safetensors").write_bytes(end.join(lines).encode())
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["lfs_pointer"]
    assert "size 4302350824" in checkpoint.anomalies[0].message
    assert len(checkpoint.tensors) == 16


def test_a_broken_header_takes_only_its_own_shard_along(folder: Path) -> None:
    raw, length = header_of({"a": ("F32", (2,))})
    write_raw(folder / "model-00001-of-00003.safetensors", raw.replace(b"F32", b"X99"), bytes(length))
    checkpoint = opened(folder)
    assert codes(checkpoint) == ["header_dtype"]
    assert len(checkpoint.tensors) == 16


def test_one_set_of_weights_counts_and_the_others_are_named(folder: Path) -> None:
    write_filled(folder / "original" / "model.safetensors", {"layers.0.wq": ("BF16", (100,))})
    write_filled(folder / "consolidated.safetensors", {"layers.0.wq": ("BF16", (100,))})
    checkpoint = opened(folder)
    assert [(anomaly.code, anomaly.subject) for anomaly in checkpoint.anomalies] == [
        ("other_weights", "consolidated"),
        ("other_weights", "original/model"),
    ]
    assert set(checkpoint.tensors) == set(LAYOUT)


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    write_filled(tmp_path / "model.safetensors", LAYOUT)
    assert codes(opened(tmp_path)) == []
    assert len(opened(tmp_path).tensors) == len(LAYOUT)


def test_total_size_may_be_that_of_tensors_or_files_and_nothing_else(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sum(place.stat().st_size for place in folder.glob("*.safetensors"))
    for total, expected in ((24 * 64, []), (files, []), (7, ["index_total_size"])):
        path.write_text(json.dumps(index | {"metadata": {"total_size": total}}))
        assert codes(opened(folder)) == expected


def test_faults_by_the_thousand_are_listed_up_to_a_bound_and_counted(folder: Path) -> None:
    ghosts = {f"ghost.{number}": "model-00001-of-00003.safetensors" for number in range(1000)}
    edit_index(folder, **ghosts)
    checkpoint = opened(folder)
    assert len(checkpoint.anomalies) == 101
    assert "900 more" in checkpoint.anomalies[-1].message


@pytest.mark.parametrize(
    "name",
    [
        "openai--gpt-oss-20b",
        pytest.param("deepseek-ai--DeepSeek-R1", marks=pytest.mark.slow),
        pytest.param("moonshotai--Kimi-K2.5", marks=pytest.mark.slow),
    ],
)
def test_real_releases_open_with_their_true_counts(sparse_release: MakeFolder, name: str) -> None:
    release = open_release(str(sparse_release(name)))
    expected = truth(name)
    assert codes(release.checkpoint) == []
    assert len(release.checkpoint.tensors) == expected["totals.tensors"]
    assert len(release.checkpoint.shards) == expected["totals.shards"]
    assert sum(info.bytes for info in release.checkpoint.tensors.values()) == expected["totals.data_bytes"]
