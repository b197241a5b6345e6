"""The layers that a config states against those that are stored: too many, or of the other feed-forward."""

from __future__ import annotations

from collections.abc import Iterable, Set

from ..finding import Finding, Subject, make_finding
from .arithmetic import MODEL_TYPES
from .counts import LayerCount, main_stack
from .index_sets import format_indices
from .layer_kinds import feed_forwards
from .readable import plural
from .seen import Seen


def further_layers(seen: Seen) -> Set[int]:
    """Layers of the text model that are stored and that the config does not count.

    Of an encoder and a decoder each has a number of its own; there nothing is said.
    """
    stated = seen.facts.architecture.layers
    if not stated or len({layer.name.rpartition(".")[0] for layer in seen.stack}) > 1:
        return set()
    return {layer.index for layer in seen.stack if layer.index >= stated}


def stated_layer_findings(seen: Seen) -> Iterable[Finding]:
    """Both contradictions, each in one finding for all layers."""
    further = further_layers(seen)
    if further:
        stack = main_stack(seen.stack)
        name, stated = stack[0].name.rpartition(".")[0], seen.facts.architecture.layers
        message = (
            f"the config states {plural(stated, 'layer')}, the tensors of {name} hold {len(stack)}: "
            f"{format_indices(further)} beyond"
        )
        evidence = [seen.facts.sources["/architecture/layers"], stack[-1].groups[0].group.example]
        yield make_finding("INV103", Subject(kind="model", name=name), message, evidence=evidence)
    for word, others in (("dense", "routed experts"), ("moe", "one dense feed-forward")):
        layers = _of_other_kind(seen, word)
        if layers:
            which = format_indices(layer.index for layer in layers)
            where = f"layer {which}" if len(layers) == 1 else f"layers {which}"
            said = f"by the config the feed-forward of {where} is {word}"
            message = f"{said}, the tensors hold {others} there"
            evidence = [f"config.json#{seen.facts.pointer}", layers[0].name]
            yield make_finding(
                "INV104", Subject(kind="model", name=f"{word} layers"), message, evidence=evidence
            )


def _of_other_kind(seen: Seen, word: str) -> list[LayerCount]:
    """Layers that the config makes `dense` or `moe` and whose tensors are the other."""
    if seen.facts.text_type not in MODEL_TYPES:
        return []
    feeds = feed_forwards(seen.facts, seen.facts.architecture.layers)
    return [
        layer
        for layer in main_stack(seen.stack)
        if layer.index < len(feeds) and feeds[layer.index] == word and word != _stored(layer)
        and _stored(layer) and not seen.awaits(role="expert" if word == "moe" else "dense_mlp")
    ]  # fmt: skip


def _stored(layer: LayerCount) -> str:
    dense = any(item.place.role == "dense_mlp" for item in layer.groups)
    return "moe" if layer.has_experts else "dense" if dense else ""
