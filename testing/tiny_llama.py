"""A tiny random llama, every node call and result recorded on the CPU: what conformance compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from day0.adapters.base.target import Call
from day0_worker import trees
from day0_worker.dtypes import torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

PROMPT = [[5, 17, 99, 3, 200, 41, 7, 120]]
ARCHITECTURE = "LlamaForCausalLM"
NODES = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head")


@dataclass(frozen=True)
class TinyLlama:
    """The model and what it did.

    Attributes:
        config: as JSON.
        weights: node -> parameter -> tensor in `dtype`.
        calls: (node, phase) -> its arguments; phases are `prefill` and `decode`.
        results: (node, phase) -> its first output, computed in fp32.
        logits: of the prompt, in fp32.
        folder: the checkpoint, as `save_pretrained` writes it.
    """

    config: Mapping[str, Any]
    weights: Mapping[str, Mapping[str, Tensor]]
    calls: Mapping[tuple[str, str], Call]
    results: Mapping[tuple[str, str], Tensor]
    logits: Tensor
    folder: Path


def make_tiny_llama(folder: Path, dtype: str, attention: str) -> TinyLlama:
    """Builds it with fixed random weights rounded to `dtype`, saves it and runs a prompt and one decode step.

    Args:
        folder: to save the checkpoint in.
        dtype: short name of weights and of recorded arguments.
        attention: attention implementation; masks differ between them.
    """
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=256, max_position_embeddings=64,
        attn_implementation=attention, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval().to(torch_dtype(dtype))
    model.save_pretrained(folder)
    weights = {
        node: {name: tensor.clone() for name, tensor in model.get_submodule(node).state_dict().items()}
        for node in NODES
    }
    model = model.float()
    calls: dict[tuple[str, str], Call] = {}
    results: dict[tuple[str, str], Tensor] = {}
    tokens = torch.tensor(PROMPT)
    logits: Tensor | None = None
    with torch.no_grad():
        cache = DynamicCache(config=config)
        for phase, step in (("prefill", tokens), ("decode", tokens[:, :1])):
            removers = [record_call(model, node, phase, dtype, calls, results) for node in NODES]
            output = model(input_ids=step, **{cache_argument(model): cache}, use_cache=True)
            logits = logits if logits is not None else output.logits
            for remover in removers:
                remover()
    assert logits is not None
    return TinyLlama(config.to_dict(), weights, calls, results, logits, folder)


def cache_argument(model: Any) -> str:
    """What a forward calls its cache: `cache` since transformers 5.24, `past_key_values` before."""
    import inspect

    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def record_call(model: Any, node: str, phase: str, dtype: str, calls: Any, results: Any) -> Any:
    """Notes the next call of a node and its result under (node, phase); gives what ends that."""
    kind = torch_dtype(dtype)

    def before(module: Any, args: Any, kwargs: Any) -> None:
        tree, tensors = trees.encode_arguments(args, kwargs)
        cast = {
            name: (tensor.to(kind) if tensor.is_floating_point() else tensor).clone()
            for name, tensor in tensors.items()
        }
        calls[node, phase] = Call(tree, cast)

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        results[node, phase] = (output[0] if isinstance(output, tuple) else output).clone()

    part = model.get_submodule(node)
    hooks = [
        part.register_forward_pre_hook(before, with_kwargs=True),
        part.register_forward_hook(after, with_kwargs=True),
    ]
    return lambda: [hook.remove() for hook in hooks]
