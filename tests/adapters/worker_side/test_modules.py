from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import DynamicCache

from day0_worker.modules import NodeModules, build_model, new_cache
from day0_worker.stack import StackError
from day0_worker.trees import STATE
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}


def modules_of(tiny: TinyRelease, dtype: str = "fp32") -> NodeModules:
    return NodeModules(tiny.skeleton.config, tiny.skeleton.architecture, dtype, {})


def test_a_node_gives_what_the_whole_model_gives_and_its_weights_go_again(tiny: Tiny) -> None:
    llama = tiny("llama")
    modules = modules_of(llama)
    tokens = torch.tensor([[3, 4, 5]])
    weights = dict(llama.stock.model.embed_tokens.state_dict())
    output = modules.run("model.embed_tokens", weights, [tokens], {})
    assert torch.equal(output, llama.stock.model.embed_tokens(tokens))
    assert all(parameter.is_meta for parameter in modules.model.parameters())


def test_kept_weights_serve_the_next_run(tiny: Tiny) -> None:
    llama = tiny("llama")
    modules = modules_of(llama)
    tokens = torch.tensor([[3, 4, 5]])
    weights = dict(llama.stock.model.embed_tokens.state_dict())
    first = modules.run("model.embed_tokens", weights, [tokens], {}, keep=True)
    assert torch.equal(modules.run("model.embed_tokens", None, [tokens], {}), first)


@pytest.mark.parametrize("rope", [None, YARN])
def test_buffers_that_no_checkpoint_holds_are_computed(tiny: Tiny, rope: dict[str, object] | None) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = dict(tiny("llama").skeleton.config) | ({"rope_parameters": rope} if rope else {})
    stock = LlamaForCausalLM(LlamaConfig.from_dict(config)).model.rotary_emb
    modules = NodeModules(config, "LlamaForCausalLM", "bf16", {})
    hidden, positions = torch.zeros(1, 4, 32, dtype=torch.bfloat16), torch.arange(4)[None]
    ours = modules.run("model.rotary_emb", {}, [hidden], {"position_ids": positions})
    theirs = stock(hidden, position_ids=positions)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_parameters_have_the_dtypes_that_from_pretrained_gives_them(tiny: Tiny) -> None:
    deepseek = tiny("deepseek_v3")
    stock = deepseek.load("bfloat16").state_dict()
    model = build_model(deepseek.skeleton.config, deepseek.skeleton.architecture, "bf16", {})
    ours = {name: value.dtype for name, value in model.state_dict().items()}
    assert ours == {name: value.dtype for name, value in stock.items()}
    assert torch.float32 in ours.values()


def test_the_cache_stands_where_the_arguments_ask_for_it(tiny: Tiny) -> None:
    llama = tiny("llama")
    modules = modules_of(llama)
    layer = llama.stock.model.layers[0]
    hidden, positions = torch.randn(1, 3, 32), torch.arange(3)[None]
    rotary = llama.stock.model.rotary_emb(hidden, position_ids=positions)
    kwargs = {"position_embeddings": rotary, "position_ids": positions, "cache": STATE}
    modules.run("model.layers.0", dict(layer.state_dict()), [hidden], kwargs, state="s")
    assert modules.cache("s").get_seq_length() == 3
    assert modules.cache("other").get_seq_length() == 0
    modules.forget("s")
    assert modules.cache("s").get_seq_length() == 0


def test_the_general_cache_knows_the_config(tiny: Tiny) -> None:
    cache = new_cache(tiny("gemma3_text").stock)
    assert isinstance(cache, DynamicCache)
    assert cache.is_sliding == [True] * 5 + [False, True]


def test_wrong_weights_are_a_key_mismatch(tiny: Tiny) -> None:
    modules = modules_of(tiny("llama"))
    for weights in (
        {},
        {"weight": torch.zeros(2, 2)},
        {"weight": torch.zeros(64, 32), "bias": torch.zeros(1)},
    ):
        with pytest.raises(StackError) as caught:
            modules.run("model.embed_tokens", weights, [torch.tensor([[1]])], {})
        assert caught.value.kind == "key_mismatch"
        assert all(parameter.is_meta for parameter in modules.model.parameters())


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [("nothing", "LlamaForCausalLM"), ("llama", "NothingForCausalLM"), ("llama", "AutoTokenizer")],
)
def test_unknown_models_are_unsupported(model_type: str, architecture: str) -> None:
    with pytest.raises(StackError) as caught:
        build_model({"model_type": model_type}, architecture, "fp32", {})
    assert caught.value.kind == "unsupported"


def test_an_unknown_node_is_named(tiny: Tiny) -> None:
    with pytest.raises(StackError, match=r"model\.layers\.99"):
        modules_of(tiny("llama")).module("model.layers.99")
