from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.conversions import shortened, spelt
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.weights import resolve_weights
from day0_worker.weights import evaluate
from support.tiny_models import TINY
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


def evaluated(skeleton: Skeleton, checkpoint: Any) -> dict[str, torch.Tensor]:
    """Every parameter by its full name, made by the skeleton's recipes."""
    return {
        f"{node.name}.{name}": evaluate(expression, {}).float()
        for node in skeleton.nodes
        for name, expression in resolve_weights(node, checkpoint).items()
    }


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_recipes_give_what_from_pretrained_loads(tiny: Tiny, model_type: str) -> None:
    model = tiny(model_type)
    ours, stock = evaluated(model.skeleton, model.release.checkpoint), model.stock.state_dict()
    assert ours.keys() == stock.keys()
    assert [name for name, value in stock.items() if not torch.equal(ours[name], value)] == []
    assert model.skeleton.unused == []


def test_experts_that_are_stored_one_by_one_are_stacked_in_order(tiny: Tiny) -> None:
    recipe = tiny("qwen3_moe").skeleton.node("model.layers.1").weights["mlp.experts.gate_up_proj"]
    each = "model.layers.1.mlp.experts.{}.%s_proj.weight"
    parts = [
        {"stack": {"each": {"tensor": each % half}, "from": 0, "to": 4}, "dim": 0} for half in ("gate", "up")
    ]
    assert recipe.expression == {"cat": parts, "dim": 1}
    assert len(recipe.tensors) == 8
    assert tuple(recipe.shape) == (4, 32, 32)


def test_a_tied_head_has_the_recipe_of_the_embedding(tiny: Tiny) -> None:
    skeleton = tiny("llama").skeleton
    head, embedding = skeleton.node("lm_head"), skeleton.node("model.embed_tokens")
    assert head.tied == {"weight": "model.embed_tokens.weight"}
    assert head.weights["weight"] == embedding.weights["weight"]
    assert embedding.tied == {}


def quantised(tiny: TinyRelease, folder: Path, drop_scale: str = "") -> dict[str, torch.Tensor]:
    """Writes the model with 2-D layer weights as fp8 in blocks of 8 x 16 and returns what they stand for."""
    stored: dict[str, torch.Tensor] = {}
    meant: dict[str, torch.Tensor] = {}
    state = tiny.stock.state_dict()
    for name in tiny.release.checkpoint.tensors:
        value = state.get(name)
        if value is None or value.dim() != 2 or "layers" not in name:
            stored[name] = state[name]
            continue
        grid = [-(-value.shape[0] // 8), -(-value.shape[1] // 16)]
        scale = torch.rand(grid) * 0.01 + 0.001
        spread = scale.repeat_interleave(8, 0).repeat_interleave(16, 1)[: value.shape[0], : value.shape[1]]
        stored[name] = (value / spread).clamp(-440, 440).to(torch.float8_e4m3fn)
        meant[name] = stored[name].float() * spread
        if name != drop_scale:
            stored[f"{name}_scale_inv"] = scale
    folder.mkdir()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tiny.folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [8, 16]}
    (folder / "config.json").write_text(json.dumps(config))
    return meant


def test_block_scaled_checkpoints_are_dequantised(tiny: Tiny, tmp_path: Path) -> None:
    meant = quantised(tiny("llama"), tmp_path / "fp8")
    release = open_release(str(tmp_path / "fp8"))
    skeleton = build_skeleton(release)
    ours = evaluated(skeleton, release.checkpoint)
    assert len(meant) == 21
    assert all(torch.equal(ours[name], value) for name, value in meant.items())
    assert skeleton.unused == []
    assert "quantization_config" not in skeleton.config


def test_a_tensor_of_the_wrong_shape_is_missing_with_its_reason(tiny: Tiny, tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in tiny("llama").stock.state_dict().items()}
    state["model.norm.weight"] = torch.ones(7)
    state["model.extra.weight"] = torch.ones(2)
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((tiny("llama").folder / "config.json").read_bytes())
    skeleton = build_skeleton(open_release(str(tmp_path)))
    assert skeleton.node("model.norm").missing == ["weight"]
    assert skeleton.unused == ["model.extra.weight"]
    (anomaly,) = [found for found in skeleton.anomalies if found.subject == "model.norm.weight"]
    assert "[7]" in anomaly.message
    assert "[32]" in anomaly.message
    assert skeleton.node("lm_head").tied == {}  # this checkpoint stores both


def test_counting_names_are_shortened_and_spelt_out_again() -> None:
    names = [{"tensor": f"a.{number}.b"} for number in range(3, 9)]
    short = shortened(names)
    assert short == {"each": {"tensor": "a.{}.b"}, "from": 3, "to": 9}
    assert [spelt(short["each"], number) for number in range(3, 9)] == names


@pytest.mark.parametrize(
    "names",
    [["a.0"], ["a.0", "a.2"], ["a.0.b", "a.1.c"], ["a.{}.0", "a.{}.1"], ["a.0.b", "a.01.b"], ["x", "y"]],
)
def test_other_names_are_not_shortened(names: list[str]) -> None:
    assert shortened([{"tensor": name} for name in names]) is None
