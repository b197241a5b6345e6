"""Expected memory per rank of a layout: what is split, what every rank keeps, and what cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from ..parallel import stage_layers
from .activations import LATENT
from .config_facts import ConfigFacts
from .index_sets import format_indices
from .layouts import ParallelLayout
from .packed import MX_GROUP
from .pieces import Piece
from .rank_rules import replication_notes, why_not
from .rank_split import Splits, rank_bytes
from .record import Layer, Quantization
from .record_distribution import LayoutMemory, StageMemory
from .state import BYTES_PER_ELEMENT


@dataclass(frozen=True)
class Model:
    """What memory per rank is computed from.

    Attributes:
        facts: the config.
        layers: of the text model, in order.
        pieces: all tensors.
        experts: routed experts a layer; 0 for none.
        quantization: normal form.
    """

    facts: ConfigFacts
    layers: Sequence[Layer]
    pieces: Sequence[Piece]
    experts: int
    quantization: Quantization


def memory_of(model: Model, layout: ParallelLayout) -> LayoutMemory:
    """Bytes per rank of one layout; one that the model cannot be split by says why."""
    known = model.facts.architecture
    splits = Splits(known.heads, known.kv_heads, model.experts, layout, _expert_blocks(model))
    reason = why_not(model.facts, model.layers, model.pieces, splits, model.quantization)
    if reason:
        return LayoutMemory(layout=layout.text, ranks=layout.ranks, possible=False, reason=reason)
    stages = _stages(model, splits)
    return LayoutMemory(
        layout=layout.text,
        ranks=layout.ranks,
        possible=True,
        notes=replication_notes(model.layers, splits),
        weights_bytes_min=min(stage.weights_bytes_min for stage in stages),
        weights_bytes_max=max(stage.weights_bytes_max for stage in stages),
        mtp_bytes_max=max(stage.mtp_bytes for stage in stages),
        kv_bytes_per_token_min=min(stage.kv_bytes_per_token for stage in stages),
        kv_bytes_per_token_max=max(stage.kv_bytes_per_token for stage in stages),
        state_bytes_per_sequence_max=max(stage.state_bytes_per_sequence for stage in stages),
        sent_bytes_per_token=_sent(model, layout),
        stages=stages,
    )


def _expert_blocks(model: Model) -> int:
    known, form = model.facts.architecture, model.quantization
    if "mxfp4" not in (form.scheme, *(part.scheme for part in form.parts)):
        return 0
    width = known.moe_intermediate_size or known.intermediate_size
    return 0 if width % MX_GROUP else width // MX_GROUP


def _stages(model: Model, splits: Splits) -> Sequence[StageMemory]:
    """Embedding and what belongs to images on the first stage; norm, head and prediction on the last."""
    pipeline = splits.layout.pp
    position = {layer.name: number for number, layer in enumerate(model.layers)}
    spans = stage_layers(len(model.layers), pipeline)
    stage_of = {number: stage for stage, span in enumerate(spans) for number in span}
    least, most, predicted = [0] * pipeline, [0] * pipeline, [0] * pipeline
    headless = not any(piece.owner == "head" and piece.part == "text" for piece in model.pieces)
    for piece in model.pieces:
        low, high = rank_bytes(piece, splits)
        if piece.part == "mtp":
            predicted[-1] += high
            continue
        for stage in _places(piece, position, stage_of, pipeline, headless):
            least[stage] += low
            most[stage] += high
    return [
        StageMemory(
            stage=stage,
            layers=format_indices(span),
            weights_bytes_min=least[stage],
            weights_bytes_max=most[stage],
            mtp_bytes=predicted[stage],
            kv_bytes_per_token=sum(_kept(model.layers[number], splits) for number in span),
            state_bytes_per_sequence=sum(
                ceil(model.layers[number].state_bytes_per_sequence / splits.layout.tp) for number in span
            ),
        )
        for stage, span in enumerate(spans)
    ]


def _places(
    piece: Piece, position: dict[str, int], stage_of: dict[int, int], pipeline: int, headless: bool
) -> Iterable[int]:
    if piece.part == "text" and piece.name in position:
        return (stage_of[position[piece.name]],)
    if piece.part == "text" and piece.owner in ("head", "norm"):
        return (pipeline - 1,)
    if piece.part == "text" and piece.owner == "embedding" and headless and pipeline > 1:
        return (0, pipeline - 1)  # the embedding's matrix also is the head
    return (0,)


def _kept(layer: Layer, splits: Splits) -> int:
    """KV bytes of a layer on one rank: whole heads, at least one; a latent is kept whole by every rank."""
    heads = splits.kv_heads
    if layer.kind in LATENT or not heads:
        return layer.kv_bytes_per_token
    return ceil(layer.kv_bytes_per_token * max(1, ceil(heads / splits.layout.tp)) / heads)


def _sent(model: Model, layout: ParallelLayout) -> dict[str, int]:
    """Direction -> bytes that one rank sends for a token in all layers; see `communication` for the sources.

    A block with routed experts has one all-reduce for these and the shared expert together; where experts are
    spread whole, the shared expert's alone is left.
    """
    known = model.facts.architecture
    payload = known.hidden_size * BYTES_PER_ELEMENT
    sparse = sum(layer.feed_forward == "moe" for layer in model.layers)
    blocks = 0
    for layer in model.layers:
        blocks += bool(layer.kind)
        whole = layer.feed_forward == "moe" and layout.ep >= layout.tp and not known.shared_experts
        blocks += bool(layer.feed_forward) and not whole
    found = {}
    if layout.tp > 1:
        direction = "sp" if layout.sp else "tp"
        found[direction] = ceil(blocks * payload * 2 * (layout.tp - 1) / layout.tp)
    if layout.ep > 1:
        routed = 2 * sparse * known.top_k * payload
        found["ep"] = ceil(routed * (layout.ep - 1) / layout.ep)
    if layout.pp > 1:
        found["pp"] = payload
    return found
