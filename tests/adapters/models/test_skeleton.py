from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import SkeletonError
from day0.adapters.base.skeleton import Node, Skeleton, StateSize
from day0.adapters.models.architecture import build_meta_model
from day0.adapters.models.skeleton import build_skeleton
from support.layouts import make_release
from support.tiny_models import TINY
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]


def layers(skeleton: Skeleton) -> list[Node]:
    return [node for node in skeleton.nodes if node.role == "layer"]


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_no_parameter_is_outside_all_nodes(tiny: Tiny, model_type: str) -> None:
    model = tiny(model_type)
    held = [f"{node.name}.{name}" for node in model.skeleton.nodes for name in node.weights]
    assert sorted(held) == sorted(model.stock.state_dict())
    assert all(not node.missing for node in model.skeleton.nodes)
    assert len(layers(model.skeleton)) == TINY[model_type]["num_hidden_layers"]


def test_nodes_stand_in_the_order_of_the_forward(tiny: Tiny) -> None:
    skeleton = tiny("llama").skeleton
    assert [(node.name, node.role) for node in skeleton.nodes] == [
        ("model.embed_tokens", "embedding"),
        ("model.rotary_emb", "position"),
        ("model.layers.0", "layer"),
        ("model.layers.1", "layer"),
        ("model.layers.2", "layer"),
        ("model.norm", "norm"),
        ("lm_head", "head"),
    ]
    assert skeleton.node("model.layers.1").reads == ["model.rotary_emb", "model.layers.0"]
    assert skeleton.node("lm_head").reads == ["model.norm"]
    assert skeleton.architecture == "LlamaForCausalLM"
    assert skeleton.dtype == "bf16"


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("qwen3_moe", [("full", "dense"), ("full", "moe"), ("full", "moe")]),
        ("deepseek_v3", [("mla", "dense"), ("mla", "moe"), ("mla", "moe")]),
        ("gpt_oss", [("sliding", "moe"), ("full", "moe"), ("sliding", "moe")]),
        ("mamba2", [("state_space", "")] * 3),
        ("qwen3_next", [("linear", "moe")] * 3 + [("full", "moe")]),
    ],
)
def test_layers_have_their_words(tiny: Tiny, model_type: str, words: list[tuple[str, str]]) -> None:
    found = [(node.layer_kind, node.feed_forward) for node in layers(tiny(model_type).skeleton)]
    assert found == words


@pytest.mark.parametrize(
    ("model_type", "experts"),
    [
        ("llama", ["", "", ""]),
        ("qwen3_moe", ["", "mlp.experts", "mlp.experts"]),
        ("mixtral", ["mlp.experts"] * 3),
        ("deepseek_v3", ["", "mlp.experts", "mlp.experts"]),
        ("gpt_oss", ["mlp.experts"] * 3),
        ("qwen3_next", ["mlp.experts"] * 4),
    ],
)
def test_stacked_experts_that_take_routed_tokens_are_named(
    tiny: Tiny, model_type: str, experts: list[str]
) -> None:
    assert [node.experts for node in layers(tiny(model_type).skeleton)] == experts


def test_experts_that_are_called_otherwise_are_not_named() -> None:
    from day0.adapters.models.nodes import experts_path

    class Stacked(torch.nn.Module):
        is_transposed, num_experts = False, 4

        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(shape, device="meta"))

        def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> None:
            """As transformers' experts."""

    class Alone(Stacked):
        def forward(self, hidden_states: Any) -> None:  # type: ignore[override]  # as Llama 4 calls them
            """Without routing."""

    def inside(*parts: torch.nn.Module) -> str:
        return experts_path(torch.nn.ModuleDict({f"part{index}": part for index, part in enumerate(parts)}))

    assert inside(Stacked(4, 2, 3)) == "part0"
    assert inside(Stacked(4, 2, 3), Stacked(4, 2, 3)) == ""
    assert inside(Stacked(3, 2, 4)) == ""
    assert inside(Alone(4, 2, 3)) == ""


@pytest.mark.parametrize(
    ("model_type", "layer", "state"),
    [
        ("llama", 0, StateSize(kind="kv", per_token=2 * 2 * 8)),
        ("deepseek_v3", 0, StateSize(kind="latent", per_token=16 + 4)),
        ("gpt_oss", 0, StateSize(kind="kv", per_token=2 * 2 * 8, window=8)),
        # inner width 64 and 2 groups of 8 states pass the convolution of 4; 8 heads hold 8 x 8 numbers each
        ("mamba2", 1, StateSize(kind="recurrent", per_sequence=(64 + 2 * 2 * 8) * 4 + 8 * 8 * 8)),
        # keys and queries 2 x 8 each, values 4 x 8 pass the convolution of 4; 4 heads hold 8 x 8 numbers each
        ("qwen3_next", 0, StateSize(kind="recurrent", per_sequence=(2 * 16 + 32) * 4 + 4 * 8 * 8)),
    ],
)
def test_state_sizes_follow_from_the_config(
    tiny: Tiny, model_type: str, layer: int, state: StateSize
) -> None:
    assert layers(tiny(model_type).skeleton)[layer].state == state


def test_kinds_follow_the_graph_and_not_names_or_places(tiny: Tiny) -> None:
    dense, *experts = layers(tiny("qwen3_moe").skeleton)
    assert dense.kind != experts[0].kind == experts[1].kind
    gemma = layers(tiny("gemma3_text").skeleton)
    assert len({node.kind for node in gemma}) == 2
    mistral = build_skeleton(make_release(dict(tiny("llama").skeleton.config) | MISTRAL, {}))
    assert layers(mistral)[0].kind == layers(tiny("llama").skeleton)[0].kind


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}


@pytest.mark.parametrize("change", [{"rms_norm_eps": 1e-3}, {"hidden_act": "gelu"}, {"head_dim": 4}])
def test_another_attribute_is_another_kind(tiny: Tiny, change: dict[str, Any]) -> None:
    config = dict(tiny("llama").skeleton.config)
    plain, changed = (build_skeleton(make_release(config | extra, {})) for extra in ({}, change))
    assert layers(plain)[0].kind != layers(changed)[0].kind


def test_a_bare_config_gives_the_structure_with_all_weights_missing(tiny: Tiny) -> None:
    skeleton = build_skeleton(make_release(tiny("llama").skeleton.config, {}))
    assert skeleton.node("model.norm").missing == ["weight"]
    assert skeleton.nodes[2].kind == tiny("llama").skeleton.nodes[2].kind


def test_the_same_release_gives_the_same_skeleton(tiny: Tiny) -> None:
    model = tiny("llama")
    assert build_skeleton(model.release).model_dump_json() == model.skeleton.model_dump_json()


def test_a_vision_tower_is_there_though_text_does_not_call_it() -> None:
    text = TINY["gemma3_text"] | {"num_hidden_layers": 2, "vocab_size": 300_000}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "image_size": 28, "patch_size": 14}  # fmt: skip
    config = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
              "text_config": text | {"model_type": "gemma3_text"}, "vision_config": vision}  # fmt: skip
    skeleton = build_skeleton(make_release(config, {}))
    assert [node.name for node in layers(skeleton)] == [
        "model.language_model.layers.0",
        "model.language_model.layers.1",
    ]
    apart = {node.role for node in skeleton.nodes if not node.called}
    assert apart == {"vision", "projector"}
    built = build_meta_model(config)
    held = {f"{node.name}.{name}" for node in skeleton.nodes for name in (*node.weights, *node.missing)}
    assert held == set(built.model.state_dict())
    assert skeleton.model_type == "gemma3_text"


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"model_type": "never_heard_of"}, "E401"),
        ({}, "E401"),
        ({"model_type": ["llama"]}, "E401"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}, "E402"),
        ({"model_type": "llama", "hidden_size": "wide"}, "E403"),
        ({"model_type": "llama", "hidden_size": 30, "num_attention_heads": 7}, "E403"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "E403"),
        ({"model_type": "llama", "hidden_act": "never_heard_of"}, "E403"),
    ],
)
def test_configs_that_give_no_model_say_why(config: dict[str, Any], code: str) -> None:
    with pytest.raises(SkeletonError) as caught:
        build_skeleton(make_release(config, {}))
    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_of_an_encoder_decoder_it_is_said_that_it_is_one() -> None:
    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    with pytest.raises(SkeletonError, match="an encoder-decoder, which token ids alone do not run") as caught:
        build_skeleton(make_release({"model_type": "t5", "is_encoder_decoder": True, **sizes}, {}))
    assert caught.value.code == "E404"


def test_repository_code_is_information_where_the_type_is_native(tiny: Tiny) -> None:
    config = dict(tiny("llama").skeleton.config)
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}, "architectures": ["Evil"]}
    config |= {"attn_implementation": "evil/kernel", "_name_or_path": "evil"}
    skeleton = build_skeleton(make_release(config, {}))
    assert skeleton.architecture == "LlamaForCausalLM"
    assert "evil" not in json.dumps(skeleton.config).lower().replace('"architectures": ["evil"]', "")


def test_a_type_that_borrows_another_types_class_is_built_by_it() -> None:
    small = {"num_layers": 1, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2,
             "vocab_size": 64, "model_type": "exaone"}  # fmt: skip
    built = build_meta_model(small)
    assert (built.architecture, built.model.config.model_type) == ("LlamaForCausalLM", "exaone")
