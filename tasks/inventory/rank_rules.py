"""Why a model cannot be split by a layout, with the arithmetic, and what a layout replicates.

The rules are those that engines enforce: `ModelConfig.verify_with_parallel_config`, `QKVParallelLinear` and
`validate_fp8_block_shape` in vLLM; the plan stage applies the same to its candidates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import ceil, gcd

from .activations import LATENT, shared_width
from .config_facts import ConfigFacts
from .packed import MX_GROUP
from .pieces import Piece
from .rank_split import Splits, axis_of, is_routed, padded_blocks, split_of
from .readable import plural
from .record import Layer, Quantization

_BLOCKED = ("fp8_block", "int4_group", "gptq", "awq")
_PADDED = ("_blocks", "_scales")  # mxfp4: engines pad a shard to whole blocks, see `padded_blocks`
_JOINED = re.compile(r"\.(in_proj\w*|conv1d)\.")  # several parts in one tensor, each split by itself


def why_not(
    facts: ConfigFacts,
    layers: Sequence[Layer],
    pieces: Sequence[Piece],
    splits: Splits,
    quantization: Quantization,
) -> str:
    """The first rule that the layout breaks, with its arithmetic; empty where it keeps all."""
    for check in (
        _stages(layers, splits),
        _experts(splits),
        _heads(facts, layers, splits),
        _widths(facts, layers, splits),
        _tensors(pieces, splits, quantization),
    ):
        for reason in check:
            return reason
    return ""


def replication_notes(layers: Sequence[Layer], splits: Splits) -> Sequence[str]:
    """What every rank keeps and what lies unevenly."""
    layout, kinds = splits.layout, {layer.kind for layer in layers}
    notes = []
    if layout.tp > 1 and kinds & set(LATENT):
        notes.append("the latent cache and the projections to it are whole on every rank")
    if kinds & {"full", "sliding", "chunked"} and 0 < splits.kv_heads < layout.tp:
        notes.append(
            f"each of {plural(splits.kv_heads, 'KV head')} lies on {layout.tp // splits.kv_heads} ranks"
        )
    notes += _padding(splits)
    rest = splits.experts % layout.ep if splits.experts else 0
    if rest:
        notes.append(f"{plural(splits.experts, 'expert')} over {layout.ep} ranks: one more on {rest} of them")
    rest = len(layers) % layout.pp
    if rest:
        notes.append(f"{len(layers)} layers over {layout.pp} stages: one more on {rest} of them")
    return notes


def _padding(splits: Splits) -> Iterator[str]:
    blocks, ranks = splits.expert_blocks, splits.expert_tp
    if blocks and blocks % ranks:
        each = padded_blocks(splits)
        empty = ranks - ceil(blocks / each)
        idle = f", {empty} of them nothing but padding" if empty else ""
        yield (
            f"an expert's {blocks} blocks of {MX_GROUP} % {ranks} = {blocks % ranks}: engines pad, "
            f"every rank holds {each}{idle}"
        )


def _stages(layers: Sequence[Layer], splits: Splits) -> Iterator[str]:
    if splits.layout.pp > max(1, len(layers)):
        yield f"{splits.layout.pp} stages for {plural(len(layers), 'layer')}"


def _experts(splits: Splits) -> Iterator[str]:
    layout = splits.layout
    if layout.ep == 1:
        return
    if not splits.experts:
        yield f"ep={layout.ep} for a model without routed experts"
    elif layout.ep > splits.experts:
        yield f"{layout.ep} ranks of experts for {plural(splits.experts, 'expert')}"
    elif (ranks := layout.tp * layout.dp) % layout.ep:
        held = plural(ranks, "rank")
        least = layout.ep // gcd(layout.tp, layout.ep)  # replicas that make the ranks a multiple of ep
        yield (
            f"{held} (tp x dp) % ep {layout.ep} = {ranks % layout.ep}; with dp={least} there are "
            f"{layout.tp * least}"
        )
    elif layout.ep < layout.tp and layout.tp % layout.ep:
        yield f"tp {layout.tp} % ep {layout.ep} = {layout.tp % layout.ep}"
    elif layout.ep > layout.tp and layout.ep % layout.tp:
        yield f"ep {layout.ep} % tp {layout.tp} = {layout.ep % layout.tp}"


def _heads(facts: ConfigFacts, layers: Sequence[Layer], splits: Splits) -> Iterator[str]:
    tensor, kinds = splits.layout.tp, {layer.kind for layer in layers}
    attends = kinds & {"full", "sliding", "chunked", *LATENT}
    if attends and splits.heads % tensor:
        yield f"{plural(splits.heads, 'head')} % {tensor} = {splits.heads % tensor}"
    if attends - set(LATENT) and splits.kv_heads:
        number = splits.kv_heads
        if number >= tensor and number % tensor:
            yield f"{plural(number, 'KV head')} % {tensor} = {number % tensor}"
        if number < tensor and tensor % number:
            yield f"{tensor} % {plural(number, 'KV head')} = {tensor % number}"
    if "linear" in kinds:
        for key in ("linear_num_key_heads", "linear_num_value_heads"):
            if facts.integer(key) % tensor:
                yield f"{facts.integer(key)} {key} % {tensor} = {facts.integer(key) % tensor}"
    if "state_space" in kinds:
        own = (
            () if "num_attention_heads" in facts.text else ("num_heads",)
        )  # a pure Mamba's, without a prefix
        number = facts.integer("mamba_num_heads", "mamba_n_heads", *own)
        if number % tensor:
            yield f"{plural(number, 'state-space head')} % {tensor} = {number % tensor}"


def _widths(facts: ConfigFacts, layers: Sequence[Layer], splits: Splits) -> Iterator[str]:
    known, tensor = facts.architecture, splits.layout.tp
    feeds = {layer.feed_forward for layer in layers}
    checks = []
    if "dense" in feeds:
        checks.append((known.intermediate_size, tensor, "dense width"))
    if "moe" in feeds:
        checks.append(
            (known.moe_intermediate_size or known.intermediate_size, splits.expert_tp, "expert width")
        )
        checks.append((shared_width(facts), tensor, "shared expert's width"))
    for width, ranks, what in checks:
        if width % ranks:
            yield f"{what} {width} % {ranks} = {width % ranks}"


def _tensors(pieces: Sequence[Piece], splits: Splits, quantization: Quantization) -> Iterator[str]:
    """Dimensions that are split must come out whole; of block scales, too: a shard holds whole blocks."""
    blocked = quantization.scheme in _BLOCKED
    seen: set[tuple[str, int]] = set()
    for piece in pieces:
        kind = split_of(piece)
        ranks = splits.expert_tp if is_routed(piece) else splits.layout.tp
        if kind not in ("column", "row", "kv") or ranks == 1 or piece.part not in ("text", "mtp"):
            continue
        if piece.pattern.endswith(_PADDED) or _JOINED.search(piece.pattern):
            continue
        if piece.role == "aux" and not blocked:
            continue
        axis = axis_of(piece, kind)
        over = min(ranks, splits.kv_heads) if kind == "kv" and splits.kv_heads else ranks
        if axis > 1 and axis % over and (piece.pattern, axis) not in seen:
            seen.add((piece.pattern, axis))
            what = "blocks" if piece.role == "aux" else "outputs" if kind != "row" else "inputs"
            yield f"{piece.pattern}: {axis} {what} % {over} = {axis % over}"
