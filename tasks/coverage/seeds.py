"""Operators that most models need: what a registry is seeded with where no model is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from day0.adapters.base.operator_call import OperatorCall

SEEDS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"num_key_value_heads": 8},
    "gemma3_text": {},
    "qwen3_moe": {},
    "qwen3_next": {"num_hidden_layers": 4},
    "deepseek_v3": {},
    "gpt_oss": {},
    "mamba2": {},
}
"""transformers model types whose default configs are captured, with what is changed in them: grouped-query
attention, sliding windows, softmax-routed experts, linear attention (one period of its layers), latent
attention with grouped routing, attention sinks, state space. Over nineteen classes 13 added no operator to
the union of the others (leave one out), so a few that differ most stand for many."""


def seed_calls() -> list[OperatorCall]:
    """The calls of all seeds in bf16, in order."""
    return [call for model_type, changes in SEEDS.items() for call in _calls_of(model_type, changes)]


def _calls_of(model_type: str, changes: Mapping[str, Any]) -> Iterator[OperatorCall]:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from day0.adapters.models.capture import capture_phases

    config = CONFIG_MAPPING[model_type](**changes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    yield from capture_phases(model, config)
