"""Each bug against the same fault made another way: other weights, another config, another mask."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from day0_worker.bugs import BUGS, Bug, bugs_in, lacking, put
from day0_worker.stack import StackError
from support.tiny_models import MORE, TINY

LAYER = "model.layers.1"
IDS = torch.randint(3, 60, (2, 20), generator=torch.Generator().manual_seed(7))
Changed = Callable[[Any], None]


@cache
def built(kind: str, values: str) -> Any:
    given = {**(TINY | MORE)[kind], "initializer_range": 0.2, **json.loads(values)}
    config = AutoConfig.for_model(kind, **given)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    for name, value in model.named_parameters():
        value.requires_grad_(False)
        if value.dim() < 2:
            value.add_(torch.randn(value.shape) * (0.3 if "norm" in name else 0.5))
    return model.eval()


def model(kind: str, **values: Any) -> Any:
    """A tiny model with weights large enough that every part matters."""
    return copy.deepcopy(built(kind, json.dumps(values)))


@torch.no_grad()
def logits(model: Any, **inputs: Any) -> torch.Tensor:
    found: torch.Tensor = model(IDS, **inputs).logits
    return found


def other_weights(kind: str, change: Changed, **values: Any) -> Any:
    made = model(kind, **values)
    change(made.get_submodule(LAYER))
    return made


def other_config(kind: str, **values: Any) -> Any:
    """The same weights under another config."""
    made = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **{**(TINY | MORE)[kind], **values}), attn_implementation="eager"
    )
    made.load_state_dict(model(kind).state_dict())
    return made.float().eval()


def by_layer(whole: Any, part: Any) -> Any:
    """The whole model with one layer of the other."""
    made = copy.deepcopy(whole)
    made.model.layers[1] = copy.deepcopy(part.model.layers[1])
    return made


def neighbours(width: int) -> list[int]:
    return [*range(0, width, 2), *range(1, width, 2)]


def pairs_other_way(layer: Any) -> None:
    """Rows of the projections reordered: what is multiplied stays the same under one order of both."""
    for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj):
        rows = linear.weight.reshape(-1, 8, linear.weight.shape[1])
        linear.weight.copy_(rows[:, neighbours(8)].reshape(linear.weight.shape))
        if linear.bias is not None:
            linear.bias.copy_(linear.bias.reshape(-1, 8)[:, neighbours(8)].reshape(-1))


def tiled_heads(layer: Any) -> None:
    attention = layer.self_attn
    for linear in (attention.k_proj, attention.v_proj):
        linear.weight = torch.nn.Parameter(linear.weight.repeat(2, 1))
        if linear.bias is not None:
            linear.bias = torch.nn.Parameter(linear.bias.repeat(2))
    attention.num_key_value_groups = 1


def no_biases(layer: Any) -> None:
    for part in layer.modules():
        if isinstance(part, torch.nn.Linear) and part.bias is not None:
            part.bias.zero_()


def block_without_scale(layer: Any) -> None:
    weight = layer.mlp.gate_proj.weight
    assert weight.shape == (48, 32)
    weight[:16, :16] *= 448 / weight[:16, :16].abs().max()


def scales_transposed(layer: Any) -> None:
    weight = layer.mlp.gate_proj.weight
    blocks = weight.reshape(3, 16, 2, 16)
    scale = blocks.abs().amax(dim=(1, 3))
    wrong = torch.tensor([scale[0, 0], scale[1, 0], scale[2, 0], scale[0, 1], scale[1, 1], scale[2, 1]])
    factor = wrong.reshape(3, 2) / scale
    weight.copy_((blocks * factor[:, None, :, None]).reshape(48, 32))


def moved_experts(layer: Any) -> None:
    for weight in layer.mlp.experts.parameters():
        weight.copy_(weight[[1, 2, 3, 0]])


def routed(layer: Any, chosen: Changed) -> None:
    """Calls `chosen` with the ids of each call before the experts compute, as a stack would not."""
    layer.mlp.experts.register_forward_pre_hook(lambda module, args: chosen(args[1]), prepend=True)


def busiest_swapped(layer: Any) -> None:
    own = {name: value.clone() for name, value in layer.mlp.experts.named_parameters()}

    def swap(ids: torch.Tensor) -> None:
        first, second = ids.reshape(-1).bincount(minlength=4).topk(2).indices.tolist()
        order = list(range(4))
        order[first], order[second] = second, first
        for name, value in layer.mlp.experts.named_parameters():
            value.copy_(own[name][order])

    routed(layer, swap)


def busiest_without_a_row(layer: Any) -> None:
    own = layer.mlp.experts.down_proj.clone()

    def drop(ids: torch.Tensor) -> None:
        weight = layer.mlp.experts.down_proj
        weight.copy_(own)
        weight[int(ids.reshape(-1).bincount(minlength=4).argmax()), weight.shape[1] // 3] = 0

    routed(layer, drop)


WEIGHTS: dict[str, tuple[str, str, Changed]] = {
    "pairs of halves": ("rope_pairing", "qwen2", pairs_other_way),
    "tiles": ("wrong_head_grouping", "qwen2", tiled_heads),
    "tiles in a model with sinks": ("wrong_head_grouping", "gpt_oss", tiled_heads),
    "biases": ("dropped_bias", "qwen2", no_biases),
    "a scale": ("missing_block_scale", "llama", block_without_scale),
    "scales": ("transposed_block_scale", "llama", scales_transposed),
    "the next expert": ("permuted_experts", "qwen3_moe", moved_experts),
    "two experts": ("swapped_experts", "qwen3_moe", busiest_swapped),
    "a row": ("expert_row", "qwen3_moe", busiest_without_a_row),
}
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "epsilon": ("norm_eps", "llama", {"rms_norm_eps": 1e-5}),
    "normalised": ("unnormalised_top_k", "glm4_moe", {"norm_topk_prob": False}),
    "scaled": ("dropped_routed_scaling", "deepseek_v3", {"routed_scaling_factor": 1.0}),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_bug_is_what_other_weights_would_do(name: str) -> None:
    bug, kind, change = WEIGHTS[name]
    bugged = model(kind)
    put(bugged, bug, LAYER)
    expected = logits(other_weights(kind, change))
    assert not torch.allclose(expected, logits(model(kind)), atol=1e-3)
    torch.testing.assert_close(logits(bugged), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_bug_is_what_another_config_would_do(name: str) -> None:
    bug, kind, values = CONFIGS[name]
    bugged, clean = model(kind), model(kind)
    put(bugged, bug, LAYER)
    expected = logits(by_layer(clean, other_config(kind, **values)))
    assert not torch.equal(expected, logits(clean))
    torch.testing.assert_close(logits(bugged), expected, rtol=1e-5, atol=1e-6)


def test_pairs_of_neighbours_are_taken_as_halves() -> None:
    bugged, other = model("deepseek_v3"), model("deepseek_v3")
    put(bugged, "rope_pairing", LAYER)
    other.model.layers[1].self_attn.config = copy.deepcopy(other.config)
    other.model.layers[1].self_attn.config.rope_interleave = False
    assert not torch.allclose(logits(other), logits(model("deepseek_v3")), atol=1e-4)
    torch.testing.assert_close(logits(bugged), logits(other), rtol=1e-5, atol=1e-6)


def test_a_router_without_a_switch_gives_raw_probabilities() -> None:
    bugged, clean = model("mixtral"), model("mixtral")
    put(bugged, "unnormalised_top_k", LAYER)
    hidden = torch.randn(9, 32)
    router = bugged.model.layers[1].mlp.gate
    _, weights, ids = router(hidden)
    expected = (hidden @ router.weight.T).softmax(-1).gather(1, ids)
    torch.testing.assert_close(weights, expected)
    assert not torch.allclose(weights, clean.model.layers[1].mlp.gate(hidden)[1])


def masked(kind: str, visible: torch.Tensor) -> torch.Tensor:
    """Logits with the second layer's mask replaced."""
    made = model(kind)
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)[None, None]

    def replaced(module: Any, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "attention_mask": mask}

    made.get_submodule(LAYER).register_forward_pre_hook(replaced, with_kwargs=True)
    return logits(made)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_masks_are_off_by_one(attention: str) -> None:
    rows, columns = torch.arange(20)[:, None], torch.arange(20)[None, :]
    future = columns <= (rows + 1).clamp_max(19)
    window = (columns <= rows) & (columns > rows - 9)
    for bug, kind, visible in (("mask_off_by_one", "llama", future), ("window_off_by_one", "gemma2", window)):
        if (kind, attention) == ("gemma2", "sdpa"):
            continue  # its soft cap has no other attention
        bugged = model(kind)
        bugged.set_attn_implementation(attention)
        put(bugged, bug, LAYER if kind == "llama" else "model.layers.0")
        made = masked(kind, visible) if kind == "llama" else _first_masked(kind, visible)
        torch.testing.assert_close(logits(bugged), made, rtol=1e-4, atol=1e-5)


def _first_masked(kind: str, visible: torch.Tensor) -> torch.Tensor:
    made = model(kind)
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)[None, None]
    made.model.layers[0].register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True
    )
    return logits(made)


class Stale(DynamicCache):  # type: ignore[misc]  # transformers is untyped
    """A cache that gives a step's own slot the content of the one before, in one layer."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        found = super().update(keys, values, layer, *args, **kwargs)
        if layer != 1 or keys.shape[2] != 1:
            return found
        return tuple(torch.cat([one[:, :, :-1], one[:, :, -2:-1]], 2) for one in found)


def test_the_newest_slot_of_a_cache_is_the_one_before_and_a_prefill_has_none() -> None:
    clean, bugged = model("llama"), model("llama")
    put(bugged, "stale_kv_slot", LAYER)
    assert torch.equal(logits(bugged), logits(clean))
    results = []
    for made, kept in ((bugged, DynamicCache(config=clean.config)), (clean, Stale(config=clean.config))):
        with torch.no_grad():
            made(IDS[:, :10], cache=kept)
            results.append(made(IDS[:, 10:11], cache=kept).logits)
    torch.testing.assert_close(results[0], results[1])
    with torch.no_grad():
        assert not torch.allclose(results[0], clean(IDS[:, :11]).logits[:, -1:], atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_rotary_scaling_is_ignored(kind: str) -> None:
    scaled = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
    scaled["original_max_position_embeddings"] = 32
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    if kind == "gemma3_text":
        ropes = {"full_attention": scaled, "sliding_attention": plain}
        bugged = model(kind, rope_parameters=ropes)
        expected = model(kind, rope_parameters={"full_attention": plain, "sliding_attention": plain})
    else:
        bugged, expected = model(kind, rope_parameters=scaled), model(kind, rope_parameters=plain)
    assert not torch.allclose(logits(bugged), logits(expected), atol=1e-3)
    put(bugged, "ignored_rotary_scaling", "model.rotary_emb")
    torch.testing.assert_close(logits(bugged), logits(expected))


def test_positions_count_padding_where_there_is_some() -> None:
    bugged = model("llama")
    clean = model("llama")
    put(bugged, "positions_count_padding", "model.rotary_emb")
    hidden = torch.zeros(2, 6, 32)
    padded = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    counted = torch.arange(6).expand(2, 6)
    rotary = bugged.model.rotary_emb
    for got, wanted in zip(rotary(hidden, padded), clean.model.rotary_emb(hidden, counted), strict=True):
        assert torch.equal(got, wanted)
    shifted = torch.tensor([[40, 41, 42, 43, 44, 45], [0, 1, 2, 3, 4, 5]])
    for got, wanted in zip(rotary(hidden, shifted), clean.model.rotary_emb(hidden, shifted), strict=True):
        assert torch.equal(got, wanted)


def test_partial_sums_in_bf16_and_clamped_inputs() -> None:
    bugged = model("llama")
    part = bugged.model.layers[1].mlp.down_proj
    put(bugged, "low_precision_accumulation", LAYER)
    value = torch.randn(3, 48)
    first = (value[:, :32] @ part.weight[:, :32].T).bfloat16().float()
    expected = (first + value[:, 32:] @ part.weight[:, 32:].T).bfloat16().float()
    torch.testing.assert_close(part(value), expected, rtol=0, atol=1e-2)
    assert torch.equal(part(value), part(value).bfloat16().float())
    clamped = model("llama")
    put(clamped, "clamped_activations", LAYER)
    bound = float(value.abs().max()) / 2
    torch.testing.assert_close(
        clamped.model.layers[1].mlp.down_proj(value), value.clamp(-bound, bound) @ part.weight.T
    )


@pytest.mark.parametrize("kind", ["llama", "gpt_oss", "qwen3_next", "mamba2", "deepseek_v3"])
def test_undone_everything_is_as_it_was_and_no_weight_was_written(kind: str) -> None:
    made = model(kind)
    before, clean = {name: value.clone() for name, value in made.state_dict().items()}, logits(made)
    names = [name for name, _ in made.named_modules() if name.endswith("layers.1")]
    missing = lacking(made, names[0])
    assert torch.equal(logits(made), clean)
    for bug in (bug for bug in BUGS if bug not in missing):
        changes = put(made, bug, names[0])
        changed = logits(made)
        if bug not in ("stale_kv_slot", "window_off_by_one"):
            assert not torch.equal(changed, clean), bug
        changes.undo()
        assert torch.equal(logits(made), clean), bug
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_other_nodes_of_the_class_stay_as_they_are() -> None:
    bugged, clean = model("llama"), model("llama")
    put(bugged, "rope_pairing", "model.layers.2")
    with torch.no_grad():
        states = [made(IDS, output_hidden_states=True).hidden_states for made in (bugged, clean)]
    assert torch.equal(states[0][2], states[1][2])
    assert not torch.equal(states[0][3], states[1][3])


def test_what_cannot_be_put_in_says_why() -> None:
    made = model("llama")
    for name, node, said in (
        ("swapped_experts", LAYER, "no stacked experts"),
        ("rope_pairing", "model.norm", "turns pairs"),
        ("nonsense", LAYER, "no bug is called 'nonsense'"),
        ("rope_pairing", "model.layers.9", "no module"),
    ):
        with pytest.raises(StackError, match=said):
            Bug(f"{name}@{node}").apply(made)
    clean = logits(made)
    assert torch.equal(clean, logits(model("llama")))


def test_bugs_are_told_from_the_ways_around_beside_them() -> None:
    options = {"attn": "eager", "with": "loop_experts,bug:norm_eps@model.norm,cast:aten.mm.default:fp32"}
    bugs, plain = bugs_in(options)
    assert bugs == [("norm_eps", "model.norm")]
    assert plain == {"attn": "eager", "with": "loop_experts,cast:aten.mm.default:fp32"}
    assert bugs_in({"with": "bug:norm_eps@model.norm"}) == ([("norm_eps", "model.norm")], {})
    assert bugs_in({"attn": "sdpa"}) == ([], {"attn": "sdpa"})
