"""Traps 1 to 12 of real checkpoints: index, shards and headers that do not say the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from day0.tasks.verdict import Verdict
from support.layouts import layout_release
from support.raw_checkpoints import (
    header_of,
    write_filled,
    write_index,
    write_raw,
    write_sharded,
)
from support.small_releases import MIXTRAL, mixtral_tensors
from support.trap_releases import INDEX, edit_index, layout, of, take, write_config, write_mixtral


def rows(record: InventoryRecord, verdict: str) -> list[tuple[str, str, str, int]]:
    return [
        (row.pattern, row.layers, row.experts, row.tensors)
        for row in record.facts.reconciliation.exceptions
        if row.verdict == verdict
    ]


def test_a_sound_release_is_consistent_complete_and_without_findings(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    record = take(tmp_path)
    found = record.facts.reconciliation
    assert (found.consistent, found.faulty, list(found.exceptions)) == (41, 0, [])
    assert (found.index.tensors, found.index.shards, found.index.total_size_is) == (41, 4, "tensor_bytes")
    assert (found.headers.files, found.headers.tensors, found.tree.shards) == (4, 41, 4)
    assert found.config.status == "arithmetic"
    assert record.facts.readiness.state == "complete"
    assert list(record.facts.redundant) == []
    assert not any(finding.severity != "info" for finding in record.findings)


def test_trap_01_index_names_a_tensor_that_the_shard_lacks(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    last = "model-00004-of-00004.safetensors"
    edit_index(tmp_path, lambda index: index["weight_map"].update({"mtp.fc.weight": last}))
    record = take(tmp_path)
    (finding,) = of(record, "INV004")
    assert finding.severity == "error"
    assert finding.subject.name == "mtp.fc.weight"
    assert last in finding.evidence
    assert rows(record, "index_only") == [("mtp.fc.weight", "", "", 1)]
    assert record.facts.totals.tensors == 41  # the index alone makes no tensor
    assert record.verdict is Verdict.FAIL


def test_trap_01_a_whole_layer_of_ghosts_is_a_row_a_pattern(tmp_path: Path) -> None:
    write_mixtral(tmp_path)

    def add(index: dict[str, Any]) -> None:
        for layer in range(58):
            for expert in range(99):
                name = f"model.layers.{layer + 3}.mlp.experts.{expert}.up_proj.weight"
                index["weight_map"][name] = "model-00001-of-00004.safetensors"

    edit_index(tmp_path, add)
    record = take(tmp_path)
    (finding,) = of(record, "INV004")
    assert "layers 3-60, experts 0-98" in finding.message
    assert rows(record, "index_only") == [
        ("model.layers.{l}.mlp.experts.{e}.up_proj.weight", "3-60", "0-98", 58 * 99)
    ]


def test_trap_02_shards_that_the_index_names_are_absent(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    for path in paths[2:]:
        path.unlink()
    record = take(tmp_path)
    (gone,) = of(record, "INV002")
    assert set(gone.evidence) == {path.name for path in paths[2:]}
    assert gone.severity == "error"
    ready = record.facts.readiness
    assert (ready.state, list(ready.awaited)) == ("arriving", [path.name for path in paths[2:]])
    (finding,) = of(record, "INV045")
    assert paths[3].name in finding.message
    assert sum(row[3] for row in rows(record, "missing_shard")) == 41 - record.facts.totals.tensors
    assert record.facts.reconciliation.index.total_size_is == "unchecked"


def test_trap_02_numbering_promises_more_than_an_index_that_agrees(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    gone = paths[3]
    gone.unlink()
    edit_index(
        tmp_path,
        lambda index: index.update(
            weight_map={name: file for name, file in index["weight_map"].items() if file != gone.name}
        ),
    )
    record = take(tmp_path)
    (finding,) = of(record, "INV002")
    assert "shard 4 of 4" in finding.message
    assert (record.facts.readiness.state, list(record.facts.readiness.awaited)) == ("arriving", [gone.name])


def test_trap_03_a_stale_index_is_told_from_a_download_that_is_not_finished(tmp_path: Path) -> None:
    stale, unfinished = tmp_path / "stale", tmp_path / "unfinished"
    for folder in (stale, unfinished):
        write_mixtral(folder)
    names = list(layout())
    old = {name: f"model-{1 + number % 13:05d}-of-00013.safetensors" for number, name in enumerate(names)}
    write_index(stale, old, 999)
    record = take(stale)
    (finding,) = of(record, "INV005")
    assert "none of the 4 tensor files" in finding.message
    assert (record.facts.readiness.state, record.facts.totals.tensors) == ("complete", 41)  # headers win
    assert of(record, "INV002") == []

    for number in (3, 4):
        (unfinished / f"model-{number:05d}-of-00004.safetensors").unlink()
    record = take(unfinished)
    assert of(record, "INV005") == []
    assert record.facts.readiness.state == "arriving"


def test_trap_04_no_index_beside_the_shards(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    (tmp_path / INDEX).unlink()
    record = take(tmp_path)
    (finding,) = of(record, "INV006")
    assert finding.severity == "warning"
    assert (record.verdict, record.facts.totals.tensors) == (Verdict.WARN, 41)
    assert record.facts.reconciliation.index.path == ""
    assert record.facts.readiness.state == "complete"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("same", "are identical"),
        ("bytes", "the same dtype and shape and different bytes"),
        ("shape", "different dtypes or shapes"),
    ],
)
def test_trap_05_the_same_tensor_in_two_shards(tmp_path: Path, change: str, said: str) -> None:
    write_mixtral(tmp_path)
    name = "model.layers.0.self_attn.q_proj.weight"
    kind = ("BF16", (16, 32)) if change == "shape" else layout()[name]
    last = tmp_path / "model-00004-of-00004.safetensors"
    held = json.loads(last.read_bytes()[8 : 8 + int.from_bytes(last.read_bytes()[:8], "little")])
    more = {key: (value["dtype"], value["shape"]) for key, value in held.items() if key != "__metadata__"}
    write_filled(last, more | {name: kind}, seed="")
    if change == "bytes":
        data = bytearray(last.read_bytes())
        data[-1] ^= 1
        last.write_bytes(bytes(data))
    record = take(tmp_path)
    (finding,) = of(record, "INV007")
    assert finding.severity == "warning"
    assert said in finding.message
    assert "read last" in finding.message
    assert "refuses" in finding.message
    assert {"model-00001-of-00004.safetensors", last.name} <= set(finding.evidence)
    assert record.facts.totals.tensors == 41


def test_trap_06_weights_shipped_three_times_are_counted_once(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    once = sum(path.stat().st_size for path in paths)
    whole = layout()
    write_config(tmp_path / "original")
    copies = [
        write_filled(tmp_path / "original" / "model.safetensors", whole),
        write_filled(tmp_path / "consolidated.safetensors", whole),
        write_filled(tmp_path / "model.fp16.safetensors", whole),
        write_raw(tmp_path / "metal" / "model.bin", b"", b"x" * 500),
        write_raw(tmp_path / "pytorch_model.bin", b"", b"x" * 700),
        write_raw(tmp_path / "mixtral-q4_0.gguf", b"", b"x" * 300),
        write_raw(tmp_path / "onnx" / "model.onnx_data", b"", b"x" * 100),
    ]
    record = take(tmp_path)
    facts = record.facts
    assert facts.totals.tensors == 41
    assert facts.totals.data_bytes < once
    kinds = {item.kind: item for item in facts.redundant}
    assert set(kinds) == {"original", "consolidated", "variant", "metal", "pickle", "gguf", "onnx"}
    assert all(item.redundant and item.same_as_canonical == "unknown" for item in facts.redundant)
    assert facts.bytes_saved == sum(path.stat().st_size for path in copies)
    assert len(facts.shards) == 4


def test_trap_06_adapters_and_components_are_no_copies(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    write_config(tmp_path / "vae", {"model_type": "vae"})
    write_filled(tmp_path / "vae" / "diffusion_pytorch_model.safetensors", {"a": ("F32", (4,))})
    write_filled(tmp_path / "adapter_model.safetensors", {"lora_A": ("F32", (4,))})
    record = take(tmp_path)
    assert {item.kind: item.redundant for item in record.facts.redundant} == {
        "component": False,
        "adapter": False,
    }
    assert record.facts.bytes_saved == 0


def test_tensors_in_a_file_that_nothing_names_are_told(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    write_filled(tmp_path / "mtp.safetensors", {"mtp.fc.weight": ("BF16", (32, 64))})
    record = take(tmp_path)
    (finding,) = of(record, "INV044")
    assert "mtp.fc.weight" in finding.message
    (item,) = record.facts.redundant
    assert (item.kind, item.redundant) == ("other", False)
    edit_index(tmp_path, lambda index: index["weight_map"].update({"mtp.fc.weight": "mtp.safetensors"}))
    record = take(tmp_path)
    assert (of(record, "INV044"), list(record.facts.redundant)) == ([], [])
    assert record.facts.totals.mtp_params == 32 * 64


def test_trap_07_truncated_shard_shows_from_sizes_alone(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    size = paths[1].stat().st_size
    with paths[1].open("r+b") as file:
        file.truncate(size - 300)
    record = take(tmp_path)
    (finding,) = of(record, "INV001")
    assert "300 are missing" in finding.message
    assert record.facts.readiness.state == "broken"
    cut = rows(record, "cut_off")
    assert cut
    assert sum(row[3] for row in cut) < 41
    (tmp_path / f"{paths[1].name}.aria2").write_bytes(b"x")  # a download that still writes it
    assert take(tmp_path).facts.readiness.state == "arriving"


def test_trap_08_lfs_pointer_in_the_place_of_weights(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    oid = hashlib.sha256(b"weights").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 4302383966\n"
    assert int.from_bytes(pointer.encode()[:8], "little") == 2336927755350992246
    paths[0].write_text(pointer)
    record = take(tmp_path)
    (finding,) = of(record, "INV097")
    assert "git-lfs" in finding.message
    assert "git lfs pull" in finding.remedy
    said = " ".join([finding.message, *finding.evidence])
    assert oid in said
    assert "4302383966" in said.replace(",", "")
    assert record.facts.readiness.state == "broken"
    assert rows(record, "unreadable_shard")


def test_trap_09_bytes_after_the_last_tensor(tmp_path: Path) -> None:
    paths = write_mixtral(tmp_path)
    with paths[0].open("ab") as file:
        file.write(b"\0" * 17)
    record = take(tmp_path)
    (finding,) = of(record, "INV030")
    assert (finding.severity, "17 bytes" in finding.message) == ("error", True)
    assert record.facts.readiness.state == "broken"


def _entry(dtype: str, shape: Sequence[int], start: int, end: int) -> str:
    return json.dumps({"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]})


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (f'{{"a":{_entry("F32", [2**62, 2**62], 0, 8)}}}', "more elements than can be counted"),
        (f'{{"a":{_entry("F32", [10**300], 0, 8)}}}', "impossible dimension"),
        (f'{{"a":{_entry("F32", [2], 0, 8)},"b":{_entry("F32", [2], 4, 12)}}}', "an overlap"),
        (f'{{"a":{_entry("F32", [2], 0, 8)},"b":{_entry("F32", [2], 12, 20)}}}', "a hole"),
        (f'{{"a":{_entry("F32", [2], 0, 8)},"a":{_entry("F32", [2], 8, 16)}}}', "twice"),
        (f'{{"a":{_entry("F32", [-2], 0, 8)}}}', "impossible dimension"),
        (f'{{"a":{_entry("F32", [1] * 70, 0, 4)}}}', "70 dimensions"),
        (f'{{"a":{_entry("U3", [8], 0, 3)}}}', "unknown dtype"),
        (f'{{"a":{_entry("F4", [3], 0, 1)}}}', "whole bytes"),
        (f'{{"{"n" * 2000}":{_entry("F32", [2], 0, 8)}}}', "2000 characters"),
        ('{"a":' + "[" * 50_000 + "]" * 50_000 + "}", "header"),
        ('{"__metadata__":{"a":1}}', "object of strings"),
        ("[1]", "does not start"),
    ],
)
def test_trap_10_headers_that_lie_are_refused_with_their_own_reason(
    tmp_path: Path, header: str, said: str
) -> None:
    paths = write_mixtral(tmp_path)
    write_raw(paths[0], header.encode(), b"\0" * 64)
    record = take(tmp_path)
    (finding,) = of(record, "INV009")
    assert said in finding.message
    assert finding.subject.name == paths[0].name
    assert record.verdict is Verdict.FAIL
    assert record.facts.totals.tensors < 41


def test_trap_10_a_tensor_far_beyond_the_end_of_its_file(tmp_path: Path) -> None:
    write_config(tmp_path)
    header, _ = header_of({"a": ("F32", (2**40,))})
    write_raw(tmp_path / "model.safetensors", header, b"\0" * 8)
    record = take(tmp_path)
    (finding,) = of(record, "INV001")
    assert f"{2**42 - 8:,}" in finding.message
    assert rows(record, "cut_off") == [("a", "", "", 1)]


def test_trap_11_merge_marker_in_the_index(tmp_path: Path) -> None:
    write_mixtral(tmp_path)
    text = (tmp_path / INDEX).read_text()
    (tmp_path / INDEX).write_text(text[:200] + "\n<<<<<<< HEAD\n" + text[200:])
    record = take(tmp_path)
    (finding,) = of(record, "INV010")
    assert finding.severity == "error"
    assert "byte" in finding.message
    assert record.facts.totals.tensors == 41  # by the headers
    assert record.facts.reconciliation.index.path == ""


def test_trap_12_holes_show_as_exact_sets_and_as_findings(tmp_path: Path) -> None:
    tensors = mixtral_tensors()
    config = {**MIXTRAL, "num_hidden_layers": 61}
    for layer in range(2, 61):
        for name, kind in mixtral_tensors().items():
            if ".layers.1." in name:
                tensors[name.replace(".layers.1.", f".layers.{layer}.")] = kind
    for name in list(tensors):
        if ".layers.21." in name or ".layers.40.block_sparse_moe.experts.2." in name:
            del tensors[name]
    write_config(tmp_path, config)
    write_sharded(tmp_path, layout(tensors), 3)
    record = take(tmp_path)
    patterns = {row.pattern: row for row in record.facts.patterns}
    assert patterns["model.layers.{l}.self_attn.q_proj.weight"].layers == "0-20,22-60"
    (layers,) = of(record, "INV020")
    assert layers.message.endswith("lack 1: 21")
    (experts,) = of(record, "INV021")
    assert "and 2 more weights: layers 40, experts 2" in experts.message
    assert (layers.severity, experts.severity) == ("error", "error")


def test_trap_12_ninety_nine_experts_of_58_layers_are_one_finding() -> None:
    release = layout_release("deepseek-ai--DeepSeek-R1")
    kept = {
        name: info
        for name, info in release.checkpoint.tensors.items()
        if not any(f".experts.{expert}." in name for expert in range(157, 256)) or ".layers.61." in name
    }
    release.checkpoint.tensors = kept  # type: ignore[misc]  # the stand-in's own attribute
    record = take_inventory(release)
    (finding,) = of(record, "INV021")
    assert "layers 3-60, experts 157-255" in finding.message
    assert f"{58 * 99:,}" in finding.message


ATTENTION = "model.layers.1.self_attn."


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (ATTENTION, "layer 1 has no attention"),
        ("model.layers.1.self_attn.o_proj", "layer 1 has no output projection of the attention"),
        ("model.layers.1.block_sparse_moe.gate", "layer 1 has no router"),
        ("model.layers.1.block_sparse_moe", "layer 1 has no routed experts and no router"),
        ("self_attn.o_proj", "all 2 layers have no output projection of the attention"),
        ("model.embed_tokens", "no embedding of tokens"),
        ("model.norm", "no weight of the last norm"),
    ],
)
def test_trap_12_a_weight_that_a_layer_lacks_is_an_error(tmp_path: Path, lost: str, said: str) -> None:
    tensors = {name: kind for name, kind in mixtral_tensors().items() if lost not in name}
    write_config(tmp_path, MIXTRAL)
    write_sharded(tmp_path, layout(tensors), 2)
    record = take(tmp_path)
    (finding,) = of(record, "INV091")
    assert said in finding.message
    assert (finding.severity, record.verdict) == ("error", Verdict.FAIL)


def test_trap_12_a_hole_of_one_weight_among_many_layers_of_an_unknown_family(tmp_path: Path) -> None:
    config = {**MIXTRAL, "model_type": "strange", "num_hidden_layers": 6}
    tensors = mixtral_tensors()
    for layer in range(2, 6):
        for name, kind in mixtral_tensors().items():
            if ".layers.1." in name:
                tensors[name.replace(".layers.1.", f".layers.{layer}.")] = kind
    del tensors["model.layers.3.input_layernorm.weight"]
    write_config(tmp_path, config)
    write_sharded(tmp_path, layout(tensors), 2)
    (finding,) = of(take(tmp_path), "INV091")
    assert finding.message.startswith("layer 3 lacks model.layers.{l}.input_layernorm.weight")
    write_config(tmp_path, {**config, "no_norm_layers": [3]})  # the config says so itself
    assert of(take(tmp_path), "INV091") == []
    assert of(take(tmp_path), "INV028") != []


def test_trap_12_a_file_without_tensors(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_raw(tmp_path / "model.safetensors", b"{}")
    record = take(tmp_path)
    (finding,) = of(record, "INV092")
    assert (finding.severity, record.facts.readiness.state) == ("error", "broken")


def test_trap_12_experts_in_one_tensor_are_counted(tmp_path: Path) -> None:
    config = {**MIXTRAL, "model_type": "qwen3_moe", "moe_intermediate_size": 16, "num_experts_per_tok": 9}
    tensors = {name: kind for name, kind in mixtral_tensors().items() if ".block_sparse_moe." not in name}
    experts, hidden = MIXTRAL["num_local_experts"], MIXTRAL["hidden_size"]
    for layer in range(2):
        at = f"model.layers.{layer}.mlp"
        held = experts - layer
        tensors[f"{at}.gate.weight"] = ("bf16", (experts, hidden))
        tensors[f"{at}.experts.gate_up_proj"] = ("bf16", (held, 32, hidden))
        tensors[f"{at}.experts.down_proj"] = ("bf16", (held, hidden, 16 - layer))
    write_config(tmp_path, config)
    write_sharded(tmp_path, layout(tensors), 2)
    record = take(tmp_path)
    messages = [finding.message for finding in of(record, "INV021")]
    assert messages == [
        f"model.layers.{{l}}.mlp.experts.{name} holds {experts - 1} experts in layer 1, "
        f"the config states {experts}"
        for name in ("gate_up_proj", "down_proj")
    ]
    assert any("down_proj" in finding.message for finding in of(record, "INV027"))
    assert "9 of" in of(record, "INV093")[0].message  # and no more are counted than there are
    assert record.facts.active_params.with_embedding_and_head <= record.facts.totals.logical_params


def test_trap_06_two_whole_sets_of_one_name_are_two_sets(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_sharded(tmp_path, layout(mixtral_tensors()), 2)
    write_sharded(tmp_path, layout(mixtral_tensors()), 3)  # the index is of these
    record = take(tmp_path)
    assert len(record.facts.shards) == 3
    assert of(record, "INV007") == []
    (copy,) = record.facts.redundant
    assert (copy.files, copy.redundant) == (2, True)


@pytest.mark.parametrize("form", ["model part {} of 3", "model-rank-{}-part-0", "weights_{}_final"])
def test_trap_04_files_whose_names_do_not_tell_are_one_set(tmp_path: Path, form: str) -> None:
    write_config(tmp_path)
    tensors = list(layout(mixtral_tensors()).items())
    for number in range(3):
        part = dict(tensors[number::3])
        write_filled(tmp_path / f"{form.format(number)}.safetensors", part)
    record = take(tmp_path)
    assert record.facts.totals.tensors == 41
    assert [finding.code for finding in record.findings if finding.severity == "error"] == []
    assert len(of(record, "INV006")) == 1


def test_trap_04_an_index_beside_the_shards_in_a_folder_is_used(tmp_path: Path) -> None:
    write_config(tmp_path)
    (tmp_path / "weights").mkdir()
    write_sharded(tmp_path / "weights", layout(mixtral_tensors()), 2)
    record = take(tmp_path)
    assert record.facts.totals.tensors == 41
    assert record.facts.reconciliation.index.path == f"weights/{INDEX}"
    assert of(record, "INV006") == []


def test_trap_04_a_number_beyond_the_total_is_told(tmp_path: Path) -> None:
    write_config(tmp_path)
    tensors = list(layout(mixtral_tensors()).items())
    for number in (1, 2):
        write_filled(tmp_path / f"model-0000{number}-of-00001.safetensors", dict(tensors[number - 1 :: 2]))
    assert any("beyond the 1" in finding.message for finding in of(take(tmp_path), "INV029"))
