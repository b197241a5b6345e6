"""One layer with routed experts, and its calls: what conformance runs in two parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from day0.adapters.base.target import Call
from day0_worker.dtypes import torch_dtype

from .tiny_llama import PROMPT, cache_argument, record_call

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE = "MixtralForCausalLM"
NODE = "model.layers.0"
EXPERTS = "mlp.experts"
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class TinyMoe:
    """The layer and how it is called.

    Attributes:
        config: of its model, as JSON.
        weights: parameter -> tensor in `dtype`.
        calls: phase -> its arguments.
    """

    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    calls: Mapping[str, Call]

    @property
    def experts(self) -> Mapping[str, Tensor]:
        """Of the experts alone, by their own names, each [experts, ...]."""
        start = f"{EXPERTS}."
        return {name[len(start) :]: value for name, value in self.weights.items() if name.startswith(start)}

    @property
    def rest(self) -> Mapping[str, Tensor]:
        """All but the experts'."""
        return {name: value for name, value in self.weights.items() if not name.startswith(f"{EXPERTS}.")}


def make_tiny_moe(dtype: str, attention: str) -> TinyMoe:
    """Builds it with fixed random weights rounded to `dtype` and runs a prompt and one decode step.

    Args:
        dtype: short name of weights and of recorded arguments.
        attention: attention implementation; masks differ between them.
    """
    import torch
    from transformers import DynamicCache, MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=256, max_position_embeddings=64, num_local_experts=8,
        num_experts_per_tok=2, attn_implementation=attention, experts_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = MixtralForCausalLM(config).eval().to(torch_dtype(dtype))
    weights = {name: tensor.clone() for name, tensor in model.get_submodule(NODE).state_dict().items()}
    model = model.float()
    calls: dict[tuple[str, str], Call] = {}
    tokens = torch.tensor(PROMPT)
    with torch.no_grad():
        cache = DynamicCache(config=config)
        for phase, step in zip(PHASES, (tokens, tokens[:, :1]), strict=True):
            remove = record_call(model, NODE, phase, dtype, calls, {})
            model(input_ids=step, **{cache_argument(model): cache}, use_cache=True)
            remove()
    return TinyMoe(config.to_dict(), weights, {phase: calls[NODE, phase] for phase in PHASES})
