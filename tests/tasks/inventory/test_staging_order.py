from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from day0.adapters.base.release import Release
from day0.adapters.checkpoints.release import open_release
from day0.adapters.sources import staging_work
from day0.adapters.sources.staging import Wanted
from day0.flows.cli import main
from day0.tasks.inventory.staging_order import minimal_tensors, staging_order, tensor_steps
from day0.tasks.inventory.take import take_inventory
from support.local_hub import LocalHub
from support.raw_checkpoints import write_release, write_sharded

MODEL = "org/ordered"
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "hidden_size": 64,
    "kv_lora_rank": 16,
    "num_attention_heads": 4,
    "vocab_size": 256,
}


def layout() -> dict[str, tuple[str, Sequence[int]]]:
    """Every part of a model, in an order that is nobody's."""
    found: dict[str, tuple[str, Sequence[int]]] = {"visual.blocks.0.attn.qkv.weight": ("BF16", [64, 64])}
    for layer in (4, 2, 0, 3, 1):
        root = f"model.layers.{layer}"
        found[f"{root}.input_layernorm.weight"] = ("BF16", [64])
        found[f"{root}.self_attn.o_proj.weight"] = ("BF16", [64, 64])
        if layer == 0:
            found[f"{root}.mlp.up_proj.weight"] = ("BF16", [128, 64])
        else:
            found[f"{root}.mlp.gate.weight"] = ("BF16", [2, 64])
            for expert in range(2):
                found[f"{root}.mlp.experts.{expert}.up_proj.weight"] = ("BF16", [128, 64])
    found["lm_head.weight"] = ("BF16", [256, 64])
    found["model.norm.weight"] = ("BF16", [64])
    found["model.embed_tokens.weight"] = ("BF16", [256, 64])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "release"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(DEEPSEEK))
    write_sharded(place, layout(), 3)
    return place


def sequence(opened: Release, wanted: Sequence[Wanted]) -> list[str]:
    """The tensors in the order in which their last byte comes."""
    held = opened.checkpoint.tensors.values()
    return [
        info.name
        for item in wanted
        for start, stop in item.ranges or ()
        for info in held
        if info.file == item.path and start <= info.offset and info.offset + info.bytes <= stop
    ]


def test_what_the_minimal_run_needs_comes_first(folder: Path) -> None:
    opened = open_release(str(folder))
    facts = take_inventory(opened).facts
    assert opened.source is not None
    wanted = staging_order(opened.checkpoint, facts, opened.source.files())
    assert [item.path for item in wanted[:2]] == ["config.json", "model.safetensors.index.json"]
    assert [item.path for item in wanted[-3:]] == list(opened.checkpoint.shards)
    assert all(item.ranges is None for item in (*wanted[:2], *wanted[-3:]))
    order = sequence(opened, wanted)
    assert sorted(order) == sorted(layout())
    layers = [int(name.split(".")[2]) if name.startswith("model.layers") else name for name in order]
    assert list(dict.fromkeys(layers)) == [
        "model.embed_tokens.weight", 0, 1, "model.norm.weight", "lm_head.weight",
        2, 3, 4, "visual.blocks.0.attn.qkv.weight",
    ]  # fmt: skip
    minimal = set(minimal_tensors(opened.checkpoint, facts))
    assert set(order[: len(minimal)]) == minimal
    assert "model.layers.1.mlp.experts.1.up_proj.weight" in minimal


def test_the_order_of_a_real_release(tmp_path: Path) -> None:
    opened = open_release(str(write_release(tmp_path / "gpt-oss", "openai--gpt-oss-20b")))
    facts = take_inventory(opened).facts
    steps = tensor_steps(opened.checkpoint, facts)
    assert len(steps) == facts.totals.tensors
    minimal = minimal_tensors(opened.checkpoint, facts)
    needed = sum(opened.checkpoint.tensors[name].bytes for name in minimal)
    layers = {name.split(".")[1] for name in minimal if name.startswith("block.")}
    layers |= {name.split(".")[2] for name in minimal if name.startswith("model.layers.")}
    assert layers == {"0", "1"}, "one sliding and one full"
    assert needed < 0.3 * facts.totals.data_bytes


def test_the_command_line_stages_in_that_order(
    local_hub: LocalHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_hub.add(MODEL, folder)
    local_hub.delay = 0.02  # requests are noted in the order in which they begin
    store = ["--store", str(tmp_path / "store")]
    assert main(["inventory", MODEL, *store]) in (0, 1)
    local_hub.forget()
    assert main(["inventory", MODEL, "--stage", *store]) in (0, 1)
    said = capsys.readouterr().err
    assert "GB/s" in said
    assert "staged 5 files" in said
    opened = open_release(MODEL)
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert local_hub.bytes_of("*.safetensors") == total
    embedding = opened.checkpoint.tensors["model.embed_tokens.weight"]
    asked = [item for item in local_hub.ranges if item[0].endswith(".safetensors")]
    early = asked[: staging_work.STREAMS]  # they begin together
    assert (embedding.file, embedding.offset, embedding.offset + embedding.bytes) in early
    vision = opened.checkpoint.tensors["visual.blocks.0.attn.qkv.weight"]
    late = [start for path, start, _ in asked[-staging_work.STREAMS :] if path == vision.file]
    assert vision.offset in late
    for file in folder.iterdir():
        assert opened.source is not None
        assert opened.source.local_path(file.name).read_bytes() == file.read_bytes()


def test_the_minimal_part_is_readable_while_the_rest_is_missing(local_hub: LocalHub, folder: Path) -> None:
    local_hub.add(MODEL, folder)
    opened = open_release(MODEL)
    here = open_release(str(folder))
    minimal = minimal_tensors(opened.checkpoint, take_inventory(opened).facts)
    local_hub.forget()
    for name in minimal:
        info = opened.checkpoint.tensors[name]
        with opened.checkpoint.path(name).open("rb") as file:
            file.seek(info.offset)
            assert file.read(info.bytes) == here.checkpoint.read(name)
    held = sum(opened.checkpoint.tensors[name].bytes for name in minimal)
    assert (
        local_hub.bytes_of("*.safetensors")
        == held
        < 0.7 * sum(info.bytes for info in opened.checkpoint.tensors.values())
    )


def test_a_folder_needs_no_staging(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["inventory", str(folder), "--stage", "--store", str(tmp_path / "store")])
    assert "nothing to stage" in capsys.readouterr().err
