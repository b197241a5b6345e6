"""How an engine spreads each tensor over devices, by the tensor's name: what is split, what is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..inventory.record import TensorPattern

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


@dataclass(frozen=True)
class Layout:
    """A way of spreading a model over devices.

    Attributes:
        tensor: tensor-parallel degree.
        pipeline: pipeline-parallel degree.
        expert: expert-parallel degree; 1: experts are split like any other weight.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """Ranks in all; expert parallelism uses the ranks of tensor parallelism."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Heads:
    """What decides how attention is split.

    Attributes:
        query: attention heads.
        kv: KV heads; ignored for a latent cache.
        latent: whether the cache is one latent per token (MLA), which every rank keeps whole.
        experts: routed experts; 0 for none.
    """

    query: int
    kv: int
    latent: bool
    experts: int

    def kv_share(self, tensor: int) -> Fraction:
        """Part of all KV heads that one rank keeps: never less than one head, a latent always whole."""
        if self.latent or self.kv == 0:
            return Fraction(1)
        return Fraction(max(1, -(-self.kv // tensor)), self.kv)

    def expert_share(self, expert: int) -> Fraction:
        """Part of the routed experts on the fullest rank: whole experts, so the remainder counts."""
        return Fraction(-(-self.experts // expert), self.experts) if self.experts else Fraction(1)


def split_kind(pattern: TensorPattern) -> str:
    """`column`, `row`, `kv`, `fused`, `vocabulary` or `replicated`.

    What is not known to be split counts as kept by every rank: a plan may be too careful, not too bold.
    """
    if pattern.owner in ("embedding", "head"):
        return "vocabulary"
    if pattern.owner not in _SPLIT_ROLES:
        return "replicated"
    for kind, names in _KINDS:
        if names.search(pattern.pattern):
            return "replicated" if kind == "row" and _per_output(pattern) else kind
    return "replicated"


def _per_output(pattern: TensorPattern) -> bool:
    """Whether a tensor has one value an output, as biases have: a row-parallel layer keeps those whole."""
    stacked = pattern.owner == "expert" and "{e}" not in pattern.pattern  # the first dimension counts experts
    return len(pattern.shape) - stacked < 2


def device_share(pattern: TensorPattern, layout: Layout, heads: Heads) -> Fraction:
    """Part of a tensor's bytes that the fullest rank of its pipeline stage holds."""
    if pattern.owner == "expert" and layout.expert > 1:
        return heads.expert_share(layout.expert)
    kind = split_kind(pattern)
    if kind in ("column", "row", "vocabulary"):
        return Fraction(1, layout.tensor)
    if kind == "kv":
        return heads.kv_share(layout.tensor)
    if kind == "fused":
        rows = heads.query + 2 * heads.kv
        query = Fraction(heads.query, layout.tensor)
        return (query + 2 * heads.kv * heads.kv_share(layout.tensor)) / rows if rows else Fraction(1)
    return Fraction(1)
