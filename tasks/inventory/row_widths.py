"""How many weights a row of a projection has by the config, to tell apart two readings of packed words.

Names and sizes are those of the usual decoder (transformers' `modeling_llama.py`, `modeling_mixtral.py`,
`modeling_deepseek_v3.py`); for a module of another name nothing is known.
"""

from __future__ import annotations

from .config_facts import ConfigFacts
from .patterns import Group
from .stored_forms import RowWidth

_FROM_HIDDEN = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj", "gate_up_proj",
                          "w1", "w3", "q_a_proj", "kv_a_proj_with_mqa", "lm_head"})  # fmt: skip
_FROM_INNER = frozenset({"down_proj", "w2"})
_OUTSIDE = frozenset({"vision_tower", "visual", "vision_model", "audio_tower", "audio_model"})


def row_widths(facts: ConfigFacts) -> RowWidth:
    """Weights in a row of a group's matrices.

    Args:
        facts: of the config.
    """
    known = facts.architecture
    moe = known.moe_intermediate_size or known.intermediate_size
    shared = facts.integer("shared_expert_intermediate_size") or known.shared_experts * moe
    values = facts.integer("v_head_dim") if facts.integer("kv_lora_rank") else known.head_dim

    def width(group: Group) -> int:
        segments = group.pattern.segments
        module = next((name for name in reversed(segments[:-1]) if not name.startswith("{")), "")
        if _OUTSIDE & set(segments):
            return 0
        if module in _FROM_HIDDEN:
            return known.hidden_size
        if module == "o_proj":
            return known.heads * values
        if module not in _FROM_INNER:
            return 0
        if {"shared_expert", "shared_experts"} & set(segments):
            return shared
        return moe if "experts" in segments else known.intermediate_size

    return width
