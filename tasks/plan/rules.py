"""Rules that engines enforce on a layout, each with its arithmetic.

r1: `ModelConfig.verify_with_parallel_config` in vLLM. r2: `QKVParallelLinear`, which replicates K and V where
there are more ranks than KV heads. r3: `validate_fp8_block_shape`; of group-quantised weights the shard along
the inputs must hold whole groups (some kernels fail only at the first request). bf16 and per-channel weights
are exempt from r3, and so is mxfp4, whose shards the engines pad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..inventory.record import Quantization, TensorPattern
from ..parallel import split_kind
from .record import RuleCheck
from .sharding import Heads, Layout

_BLOCKED = ("fp8_block",)
_GROUPED = ("int4_group", "gptq", "awq")
_LOW_PRECISION = ("fp8_e4m3", "fp8_e5m2", "int32", "uint8", "int8", "int4")


def check_r1(heads: int, tensor: int) -> RuleCheck:
    """Attention heads divide evenly over the ranks."""
    rest = heads % tensor if heads else 0
    return RuleCheck(rule="r1", holds=rest == 0, arithmetic=f"{heads} heads % {tensor} = {rest}")


def check_r2(heads: Heads, tensor: int) -> RuleCheck:
    """KV heads divide evenly, or the ranks over the KV heads, each of which is then replicated."""
    if heads.latent or not heads.kv:
        return RuleCheck(rule="r2", holds=True, arithmetic="no KV heads to split: every rank keeps the cache")
    if tensor <= heads.kv:
        rest = heads.kv % tensor
        return RuleCheck(rule="r2", holds=rest == 0, arithmetic=f"{heads.kv} KV heads % {tensor} = {rest}")
    rest = tensor % heads.kv
    copies = "" if rest else f", each KV head on {tensor // heads.kv} ranks"
    return RuleCheck(
        rule="r2", holds=rest == 0, arithmetic=f"{tensor} % {heads.kv} KV heads = {rest}{copies}"
    )


@dataclass(frozen=True)
class BlockWeight:
    """A weight whose shards must hold whole blocks or groups.

    Attributes:
        name: pattern.
        rows: outputs.
        columns: inputs, unpacked.
        kind: `column` (outputs are split), `row` (inputs are split) or `kv`.
        routed: whether it belongs to a routed expert.
    """

    name: str
    rows: int
    columns: int
    kind: str
    routed: bool


def block_weights(patterns: Iterable[TensorPattern], quantization: Quantization) -> tuple[BlockWeight, ...]:
    """The weights to which r3 applies; none where the scheme is exempt."""
    if quantization.scheme not in (*_BLOCKED, *_GROUPED):
        return ()
    found = []
    for pattern in patterns:
        kind = split_kind(pattern)
        if (
            pattern.dtype not in _LOW_PRECISION
            or pattern.role == "aux"
            or kind not in ("column", "row", "kv")
        ):
            continue
        if len(pattern.shape) < 2 or pattern.part != "text":
            continue
        rows, columns = _outputs_and_inputs(pattern, quantization)
        found.append(BlockWeight(pattern.pattern, rows, columns, kind, pattern.owner == "expert"))
    return tuple(found)


def _outputs_and_inputs(pattern: TensorPattern, quantization: Quantization) -> tuple[int, int]:
    """The weight's dimensions once unpacked: GPTQ stores [inputs / n, outputs], AWQ [inputs, outputs / n]."""
    first, second = pattern.shape[-2], pattern.shape[-1]
    if pattern.dtype == "int4":  # implied by a config: as the model has it, not packed
        return first, second
    width = {"int32": 32, "uint8": 8}.get(pattern.dtype, 0)
    packed = width // quantization.bits if width and quantization.bits else 1
    if quantization.scheme == "gptq":
        return second, first * packed
    if quantization.scheme == "awq":
        return second * packed, first
    return first, second * packed


def check_r3(
    weights: Sequence[BlockWeight], quantization: Quantization, layout: Layout, heads: Heads
) -> RuleCheck:
    """Every shard of a block-quantised weight holds whole blocks; experts that stay whole are exempt."""
    if not weights:
        scheme = quantization.scheme
        return RuleCheck(rule="r3", holds=True, arithmetic=f"no block-quantised shards to check ({scheme})")
    block = quantization.group
    rows_block, columns_block = (1, block) if isinstance(block, int) else (int(block[0]), int(block[1]))
    checked: list[str] = []
    for weight in weights:
        if weight.routed and layout.expert > 1:
            continue
        size, over, unit = _shard(weight, layout.tensor, heads, rows_block, columns_block)
        if unit <= 1 or over == 1:
            continue
        shard, uneven = divmod(size, over)
        if uneven or shard % unit:
            rest = f"{shard} % {unit} = {shard % unit}" if not uneven else f"remainder {uneven}"
            arithmetic = f"{weight.name}: {size} / {over} = {size / over:g}, {rest}"
            return RuleCheck(rule="r3", holds=False, arithmetic=arithmetic)
        checked.append(f"{size} / {over} = {shard}")
    distinct = list(dict.fromkeys(checked))
    unit_text = f"[{rows_block}, {columns_block}]" if rows_block > 1 else str(columns_block)
    shown = ", ".join(distinct[:4]) if distinct else "nothing is split"
    return RuleCheck(rule="r3", holds=True, arithmetic=f"whole blocks of {unit_text}: {shown}")


def _shard(
    weight: BlockWeight, tensor: int, heads: Heads, rows_block: int, columns_block: int
) -> tuple[int, int, int]:
    """The dimension that is split, into how many parts, and the block it must hold whole."""
    if weight.kind == "row":
        return weight.columns, tensor, columns_block
    over = min(tensor, heads.kv) if weight.kind == "kv" and heads.kv else tensor
    return weight.rows, over, rows_block
