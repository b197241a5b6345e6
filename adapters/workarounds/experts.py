"""Experts one after the other, each on all tokens: no indexing, no counting, no grouped product."""

from __future__ import annotations

from typing import Any, Mapping

from day0_worker.workarounds import Workaround

_IMPLEMENTATION = "day0_loop"


class LoopExperts(Workaround):
    """`loop_experts`: experts / top-k times the work of the grouped product, out of plain ones alone.

    For models of few experts, and to get on while a target lacks grouped products, `nonzero`, sorting and
    indexed sums alike. Takes experts that transformers builds behind its own experts interface.
    """

    name = "loop_experts"
    replaces = (
        "aten._grouped_mm.default",
        "aten.nonzero.default",
        "aten.index_add_.default",
        "aten.histc.default",
    )

    def applies(self, call: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
        """See `Workaround`: the call is made inside experts."""
        modules = [call.get("module", ""), *call.get("modules", ())]
        return call["op"] in self.replaces and any("expert" in str(module) for module in modules)

    def apply(self, model: Any) -> None:
        """See `Workaround`: registers the loop with transformers and has the model's configs choose it."""
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        ALL_EXPERTS_FUNCTIONS.register(_IMPLEMENTATION, loop)
        for module in model.modules():
            config: Any = getattr(module, "config", None)
            if hasattr(module, "is_transposed") and hasattr(config, "_experts_implementation"):
                config._experts_implementation = _IMPLEMENTATION


def loop(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """Weighted sum over all experts; a token that did not choose one weighs its output with zero.

    Args:
        self: experts as transformers builds them.
        hidden_states: [tokens, hidden].
        top_k_index: [tokens, k], expert of each choice.
        top_k_weights: [tokens, k].

    Returns:
        [tokens, hidden].
    """
    import torch

    total = torch.zeros_like(hidden_states)
    for expert in range(self.num_experts):
        weight = (top_k_weights * (top_k_index == expert)).sum(dim=-1, keepdim=True)
        total = total + _expert(self, expert, hidden_states) * weight.to(hidden_states.dtype)
    return total


def _expert(self: Any, expert: int, hidden: Any) -> Any:
    name = "gate_up_proj" if self.has_gate else "up_proj"
    inner = _linear(self, name, expert, hidden)
    inner = self._apply_gate(inner) if self.has_gate else self.act_fn(inner)
    output = _linear(self, "down_proj", expert, inner)
    return self.post_expert_norm(output) if self.has_post_expert_norm else output


def _linear(self: Any, name: str, expert: int, value: Any) -> Any:
    weight = getattr(self, name)[expert]
    product = value @ (weight if self.is_transposed else weight.t())
    return product + getattr(self, f"{name}_bias")[expert] if self.has_bias else product
