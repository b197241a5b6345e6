"""The minimal run over tiny models: what ran, what the loader says, what is found where."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton import build_skeleton
from day0.tasks.minimal.measure import Question, measure_minimal
from day0.tasks.minimal.record import MinimalRecord
from support.in_process_target import InProcessTarget, dies, lacks_an_operator
from support.quantising_target import Kernel, QuantisingTarget
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


def measured(
    release: Release, skeleton: Skeleton, target: Any, store: Path, limit: int = 2**33
) -> MinimalRecord:
    return measure_minimal(Question(release, skeleton, RunStore(store), limit), target, target.describe())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("minimal")


@pytest.fixture(scope="module")
def gemma(tiny: Tiny) -> TinyRelease:
    return tiny("gemma3_text")


def outcomes(record: MinimalRecord) -> dict[tuple[str, str], str]:
    return {(fact.name, fact.phase): fact.outcome for fact in record.facts.nodes}


def test_first_layers_of_each_kind_run_and_the_cut_release_loads(gemma: TinyRelease, shared: Path) -> None:
    record = measured(gemma.release, gemma.skeleton, InProcessTarget("eager@cpu/fp32"), shared)
    assert (record.verdict, record.findings) == ("pass", ())
    names = [fact.name for fact in record.facts.nodes if fact.phase == "decode"]
    layers = ["model.layers.0", "model.layers.5"]
    assert [name for name in names if ".layers." in name] == layers
    assert set(outcomes(record).values()) == {"ran"}
    cut, load = record.facts.cut, record.facts.load
    assert cut is not None
    assert load is not None
    assert (cut.layers, load.outcome) == ((0, 5), "loaded")
    assert "num_hidden_layers: 7 -> 2" in cut.config_changes
    assert record.facts.generated is not None
    assert [len(row) for row in record.facts.generated] == [4, 4]
    folder = shared / record.files["cut"]
    config = json.loads((folder / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    tensors = load_file(folder / "model.safetensors")
    assert len(tensors) == cut.tensors
    name = "self_attn.q_proj.weight"
    stored = tensors[f"model.layers.1.{name}"]
    assert torch.equal(stored, gemma.stock.model.layers[5].self_attn.q_proj.weight.to(stored.dtype))


def test_the_cut_generates_what_stock_gives_with_the_same_layers(gemma: TinyRelease, shared: Path) -> None:
    record = measured(gemma.release, gemma.skeleton, InProcessTarget("eager@cpu/fp32"), shared)
    stock = gemma.load("float32")
    stock.model.layers = torch.nn.ModuleList([stock.model.layers[0], stock.model.layers[5]])
    ids = torch.tensor(record.facts.tokens)
    generated: list[torch.Tensor] = []
    stock.config.num_hidden_layers, stock.config.layer_types = 2, ["sliding_attention", "full_attention"]
    with torch.no_grad():
        for _ in range(4):
            logits = stock(torch.cat([ids, *generated], 1), use_cache=False).logits
            generated.append(logits[:, -1:].argmax(-1))
    assert record.facts.generated == torch.cat(generated, 1).tolist()


def test_a_written_cut_is_not_written_again(gemma: TinyRelease, shared: Path) -> None:
    first = measured(gemma.release, gemma.skeleton, InProcessTarget("eager@cpu/fp32"), shared)
    file = shared / first.files["cut"] / "model.safetensors"
    before = file.stat().st_mtime_ns
    again = measured(gemma.release, gemma.skeleton, InProcessTarget("eager@cpu/bf16"), shared)
    assert again.files == first.files
    assert file.stat().st_mtime_ns == before


def test_every_failure_is_classed_and_the_other_nodes_still_run(gemma: TinyRelease, shared: Path) -> None:
    def with_nan(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * math.nan

    faults = {
        "model.layers.0": lacks_an_operator,
        "model.layers.1": dies,
        "model.norm": with_nan,
        "lm_head": lambda tensor: tensor[..., :-1],
    }
    record = measured(gemma.release, gemma.skeleton, InProcessTarget("eager@cpu/fp32", faults), shared)
    found = outcomes(record)
    assert found["model.layers.0", "prefill"] == "missing_operator"
    assert found["model.layers.5", "prefill"] == "crash"  # the second layer of the cut
    assert found["model.norm", "prefill"] == "nonfinite"
    assert found["lm_head", "decode"] == "shape"
    assert found["model.embed_tokens", "decode"] == "ran"
    assert found["model.layers.5", "decode"] == "not_run"
    codes = {finding.code: finding for finding in record.findings}
    assert {"MIN001", "MIN006", "MIN010", "MIN003", "MIN012"} <= set(codes)
    assert "aten::silu.out" in codes["MIN001"].message
    assert codes["MIN006"].subject.name == "model.layers.5"
    assert record.facts.load is not None
    assert record.facts.load.outcome == "loaded"


def test_what_is_not_claimed_is_unverified(gemma: TinyRelease, shared: Path) -> None:
    target = InProcessTarget("eager@cpu/fp32", capabilities=("op",))
    record = measured(gemma.release, gemma.skeleton, target, shared)
    assert record.verdict == "unverified"
    assert [finding.code for finding in record.findings] == ["MIN017", "MIN009"]


def test_a_cut_that_no_worker_could_hold_is_not_written(gemma: TinyRelease, tmp_path: Path) -> None:
    target = InProcessTarget("eager@cpu/fp32")
    record = measured(gemma.release, gemma.skeleton, target, tmp_path, limit=1000)
    assert [finding.code for finding in record.findings] == ["MIN015"]
    assert record.facts.cut is None
    assert not (tmp_path / "cuts").exists()
    assert set(outcomes(record).values()) == {"ran"}


def test_missing_weights_end_the_walk_and_show_in_the_loader(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    whole: dict[str, torch.Tensor] = {}
    for shard in sorted(tiny("llama").folder.glob("*.safetensors")):
        whole |= load_file(shard)
    del whole["model.layers.0.mlp.up_proj.weight"]
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text((tiny("llama").folder / "config.json").read_text())
    release = open_release(str(folder))
    record = measured(release, build_skeleton(release), InProcessTarget("eager@cpu/fp32"), tmp_path)
    found = outcomes(record)
    assert found["model.embed_tokens", "prefill"] == "ran"
    assert found["model.layers.0", "prefill"] == "not_run"
    codes = {finding.code: finding.message for finding in record.findings}
    assert "mlp.up_proj.weight" in codes["MIN012"]
    assert "model.layers.0.mlp.up_proj.weight" in codes["MIN013"]


_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("qwen3_next", "mamba2", "gpt_oss")]


@pytest.mark.parametrize("model_type", ["deepseek_v3", *_SLOW])
def test_other_families_are_cut_and_run(tiny: Tiny, shared: Path, model_type: str) -> None:
    model = tiny(model_type)
    record = measured(model.release, model.skeleton, InProcessTarget("eager@cpu/bf16"), shared)
    assert [fact for fact in record.facts.nodes if fact.outcome != "ran"] == []
    assert record.facts.load is not None
    assert (record.facts.load.missing, record.facts.load.unexpected) == ((), ())
    kinds = {node.kind for node in model.skeleton.nodes if node.role == "layer"}
    assert len({fact.kind for fact in record.facts.nodes if fact.role == "layer"}) == len(kinds)
    assert record.verdict == "pass"


def test_a_stack_that_computes_in_fp8_is_sent_sixteen_bits(gemma: TinyRelease, shared: Path) -> None:
    target = QuantisingTarget("quantising@cpu/fp8_e4m3", Kernel("fp8_e4m3"), capabilities=("fragment",))
    record = measured(gemma.release, gemma.skeleton, target, shared)
    assert set(outcomes(record).values()) == {"ran"}
