"""Bytes of one tensor on the emptiest and on the fullest rank of its pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from ..parallel import split_kind
from .layouts import ParallelLayout
from .pieces import Piece

_TRANSPOSED = frozenset({"qweight", "qzeros", "scales"})  # GPTQ and AWQ keep [inputs, outputs]
_WHOLE_SIDES = ("_shape", "g_idx")  # of the whole weight; every rank that loads a part keeps them


@dataclass(frozen=True)
class Splits:
    """What decides how a model's tensors are split.

    Attributes:
        heads: attention heads.
        kv_heads: KV heads.
        experts: routed experts a layer.
        layout: degrees.
        expert_blocks: blocks that an expert's width has, where engines pad each rank's part to whole blocks
            (mxfp4); 0 where nothing is padded.
    """

    heads: int
    kv_heads: int
    experts: int
    layout: ParallelLayout
    expert_blocks: int = 0

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert: none where experts are spread whole over all ranks of `tp`."""
        return max(1, self.layout.tp // self.layout.ep)


def rank_bytes(piece: Piece, splits: Splits) -> tuple[int, int]:
    """Bytes of a piece on the emptiest and on the fullest rank.

    Experts go whole to the ranks of `ep`; where `ep` is less than `tp`, the ranks that share an expert split
    it as a dense block is split (TensorRT-LLM: moe_tp x moe_ep = tp).
    """
    if not piece.count or not piece.bytes:
        return 0, 0
    each = piece.bytes // piece.count
    if not is_routed(piece):
        least, most = _of_tensor(piece, each, splits.layout.tp, splits)
        return least * piece.count, most * piece.count
    least, most = _of_expert(piece, each, splits)
    if "{e}" in piece.pattern:
        held = spread(piece.count, splits.layout.ep)
        return least * held[0], most * held[1]
    number = piece.shape[0] if piece.shape else 1
    held = spread(number, splits.layout.ep)
    return least * held[0] // number * piece.count, ceil(most * held[1] / number) * piece.count


def padded_blocks(splits: Splits) -> int:
    """Blocks of an expert's width that each rank allocates; more than its part where they do not divide.

    Source: `_load_weights_mxfp4` in vLLM's `models/gpt_oss.py`: `cdiv(intermediate_size // 32, tp_size)`.
    """
    return ceil(splits.expert_blocks / splits.expert_tp)


def _of_expert(piece: Piece, size: int, splits: Splits) -> tuple[int, int]:
    if splits.expert_blocks and splits.expert_tp > 1 and split_of(piece) in ("column", "row"):
        return (_part(size, padded_blocks(splits), splits.expert_blocks)[1],) * 2
    return _of_tensor(piece, size, splits.expert_tp, splits)


def is_routed(piece: Piece) -> bool:
    """Whether it belongs to routed experts, those of multi-token prediction included."""
    return piece.owner == "expert" or (piece.part == "mtp" and ".experts." in piece.pattern)


def spread(number: int, ranks: int) -> tuple[int, int]:
    """Of so many whole things, how many the emptiest and the fullest rank get."""
    return number // ranks, ceil(number / ranks)


def axis_of(piece: Piece, kind: str) -> int:
    """Size of the dimension that is split; 1 where every rank keeps the tensor whole."""
    if kind == "replicated" or piece.pattern.endswith(_WHOLE_SIDES):
        return 1
    stacked = is_routed(piece) and "{e}" not in piece.pattern  # the first dimension counts experts
    sizes = piece.shape[1:] if stacked else piece.shape
    transposed = piece.pattern.rpartition(".")[2] in _TRANSPOSED and len(sizes) > 1
    if not sizes:
        return 1
    if kind == "row":
        return sizes[0] if transposed or len(sizes) < 2 else sizes[1]
    return sizes[-1] if transposed else sizes[0]


def split_of(piece: Piece) -> str:
    """How it is split, multi-token prediction as the layer that it is."""
    owner = _mtp_owner(piece) if piece.part == "mtp" else piece.owner
    return _kind(piece.pattern, owner, len(piece.shape))


@lru_cache(maxsize=4096)
def _kind(pattern: str, owner: str, dims: int) -> str:
    """The same for all layers of a pattern: only the number of dimensions counts."""
    return split_kind(_AsLayer(pattern, owner, (1,) * dims))


@dataclass(frozen=True)
class _AsLayer:
    pattern: str
    owner: str
    shape: Sequence[int]


def _mtp_owner(piece: Piece) -> str:
    if piece.owner != "mtp":
        return piece.owner
    names = piece.pattern.split(".")
    if "experts" in names:
        return "expert"
    if names[-2:-1] and names[-2] in ("embed_tokens", "head", "lm_head"):
        return "embedding"
    return "attention" if {"self_attn", "attn", "mlp", "mixer", "linear_attn"} & set(names) else "mtp"


def _of_tensor(piece: Piece, size: int, ranks: int, splits: Splits) -> tuple[int, int]:
    kind = split_of(piece)
    if ranks == 1 or kind == "replicated":
        return size, size
    if kind in ("kv", "fused") and splits.kv_heads and axis_of(piece, kind) > 1:
        kept = max(1, ceil(splits.kv_heads / ranks))
        if kind == "kv":
            return _part(size, kept, splits.kv_heads)
        rows = splits.heads + 2 * splits.kv_heads
        return _part(size, ceil(splits.heads / ranks) + 2 * kept, rows)
    axis = axis_of(piece, "column" if kind in ("kv", "fused", "vocabulary") else kind)
    if axis <= 1:
        return size, size
    least, most = spread(axis, ranks)
    if kind == "vocabulary":  # rows are padded, so that every rank has as many
        least = most
    return size * least // axis, ceil(size * most / axis)


def _part(size: int, numerator: int, denominator: int) -> tuple[int, int]:
    return size * numerator // denominator, ceil(size * numerator / denominator)
