"""How engines spread tensors and layers over ranks: by a tensor's name what is split, by number which layers.

The inventory's table and the plan share these rules, so that they cannot contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

# After the parallel layers of vLLM's models: ColumnParallelLinear, RowParallelLinear, QKVParallelLinear.
_REPLICATED = r"q_a_proj|kv_a_proj_with_mqa|kv_a_proj|indexer|compressor|gate_inp|rel_attn"
_KV = r"k_proj|v_proj|wk|wv"
_FUSED = r"qkv_proj|query_key_value|c_attn|Wqkv|wqkv|W_pack|qkv"
_ROW = r"o_proj|down_proj|out_proj|w2|fc2|c_proj|dense_4h_to_h|dense|wo|linear_2|output_linear"
_COLUMN = (
    r"q_proj|q_b_proj|kv_b_proj|gate_proj|up_proj|gate_up_proj|w1|w3|fc1|c_fc|dense_h_to_4h|linear_1|wq|wq_b|"
    r"in_proj\w*|sinks|input_linear|conv1d|A_log|dt_bias|D"
)
_KINDS = tuple(
    (kind, re.compile(rf"(?:^|[._])(?:{names})(?=$|[._])"))
    for kind, names in (
        ("replicated", _REPLICATED), ("fused", _FUSED), ("kv", _KV), ("row", _ROW), ("column", _COLUMN),
    )
)  # fmt: skip
_SPLIT_ROLES = frozenset({"attention", "dense_mlp", "shared_expert", "expert"})


class SplitTensor(Protocol):
    """What decides how a tensor is split.

    Attributes:
        pattern: its name without indices.
        owner: role of the weight that it is or serves.
        shape: as stored.
    """

    @property
    def pattern(self) -> str:
        """Name without indices."""

    @property
    def owner(self) -> str:
        """Role of the weight that it is or serves."""

    @property
    def shape(self) -> Sequence[int]:
        """As stored."""


def split_kind(tensor: SplitTensor) -> str:
    """`column`, `row`, `kv`, `fused`, `vocabulary` or `replicated`.

    What is not known to be split counts as kept by every rank: a plan may be too careful, not too bold.
    """
    if tensor.owner in ("embedding", "head"):
        return "vocabulary"
    if tensor.owner not in _SPLIT_ROLES:
        return "replicated"
    for kind, names in _KINDS:
        if names.search(tensor.pattern):
            return "replicated" if kind == "row" and _per_output(tensor) else kind
    return "replicated"


def _per_output(tensor: SplitTensor) -> bool:
    """Whether a tensor has one value an output, as biases have: a row-parallel layer keeps those whole."""
    stacked = tensor.owner == "expert" and "{e}" not in tensor.pattern  # the first dimension counts experts
    return len(tensor.shape) - stacked < 2


def stage_layers(layers: int, stages: int) -> tuple[range, ...]:
    """Which layers each pipeline stage gets: the remainder goes one each to the stages before the last.

    Source: `get_pp_indices` in vLLM's `distributed/utils.py`.
    """
    sizes = [layers // stages] * stages
    for number in range(2, layers % stages + 2):
        sizes[-number] += 1
    starts = [sum(sizes[:number]) for number in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
