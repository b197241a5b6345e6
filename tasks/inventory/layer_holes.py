"""Weights that a layer lacks though it must have them, or is by the config like layers that have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from ..finding import Finding, Subject, make_finding
from .counts import LayerCount, main_stack
from .index_sets import format_indices, layers_text
from .layer_kinds import feed_forwards, layer_words
from .layer_slots import is_known_family, missing_slots
from .seen import Seen

# Keys by which configs say that layers share caches or weights, or that a search pruned them one by one.
_EXPLAIN = (
    "block_configs", "num_kv_shared_layers", "cla_share_factor", "use_cla", "kv_sharing", "layer_sharing",
    "num_kv_reuse_layers", "kv_reuse_group", "pruned_heads", "num_shared_layers", "num_mem_blocks",
    "num_kv_groups_shared", "per_layer_config", "hybrid_block_configs",
)  # fmt: skip
_DROPPED = re.compile(r"drop|skip|prun|remov|no_?op|without", re.IGNORECASE)
# Modules without which nothing that a layer is for can be computed, whatever the family calls the rest.
_PROJECTIONS = frozenset({
    "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "gate_proj", "up_proj", "down_proj", "gate_up_proj",
    "w1", "w2", "w3", "wq", "wk", "wv", "wo", "kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj",
})  # fmt: skip


def hole_findings(seen: Seen) -> Iterable[Finding]:
    """One finding for all weights of the same layers; none for what an absent shard explains."""
    if seen.awaited.untold or not seen.stack:
        return
    told: dict[int, set[str]] = {}
    if is_known_family(seen.facts):
        yield from _slots(seen, told)
    words, feeds = _stated(seen)
    kinds: dict[tuple[str, str, str], list[LayerCount]] = {}
    for layer in seen.stack:
        kind = words[layer.index] if layer.index < len(words) else "beyond"
        feed = feeds[layer.index] if layer.index < len(feeds) else ""
        kinds.setdefault((layer.name.rpartition(".")[0], kind, feed), []).append(layer)
    for layers in kinds.values():
        yield from _against_peers(seen, layers, told)


def _stated(seen: Seen) -> tuple[Sequence[str], Sequence[str]]:
    """Attention word and feed-forward of each layer: as stated, or as stored where the two contradict."""
    number = seen.facts.architecture.layers or max((layer.index for layer in seen.stack), default=-1) + 1
    number = min(number, max(layer.index for layer in seen.stack) + 1)
    words = list(layer_words(seen.facts, seen.facts.architecture.layers or number))
    feeds = list(feed_forwards(seen.facts, seen.facts.architecture.layers or number))
    if any(_contradicts(layer, feeds) for layer in seen.stack):
        feeds = [""] * len(feeds)
        for layer in seen.stack:
            if layer.index < len(feeds):
                feeds[layer.index] = "moe" if layer.has_experts else ""
    return words, feeds


def _contradicts(layer: LayerCount, feeds: Sequence[str]) -> bool:
    """Whether the stored feed-forward is of the other kind than the stated one."""
    if layer.index >= len(feeds):
        return False
    dense = any(item.place.role == "dense_mlp" for item in layer.groups)
    return layer.has_experts if feeds[layer.index] == "dense" else dense and not layer.has_experts


def _slots(seen: Seen, told: dict[int, set[str]]) -> Iterable[Finding]:
    """What layers of a known family cannot do without, layer by layer."""
    if seen.release.checkpoint.format != "safetensors" or _explained_at_all(seen):
        return
    feeds = _stated(seen)[1]
    gone: dict[str, list[int]] = {}
    deepest = {layer.name for layer in main_stack(seen.stack)}
    for layer, known in zip(seen.stack, seen.layers, strict=True):
        if layer.name not in deepest or layer.index >= len(feeds) or _arrives(seen, layer):
            continue
        feed = feeds[layer.index]
        if feed == "" and seen.facts.architecture.experts:
            feed = "" if not layer.has_experts else "moe"
        for what in missing_slots(layer, known.kind, feed, seen.facts):
            if what == "routed experts" and any(item.place.role == "router" for item in layer.groups):
                continue  # INV021 says that
            gone.setdefault(what, []).append(layer.index)
            told.setdefault(layer.index, set()).add(what)
    alike: dict[tuple[int, ...], list[str]] = {}
    for what, layers in gone.items():
        alike.setdefault(tuple(layers), []).append(what)
    for indices, whats in alike.items():
        if _left_out(seen, indices):
            continue
        where = _layers(seen, indices)
        message = f"{where} no {_listed(whats)}, without which no layer of this family computes"
        subject = Subject(kind="model", name=f"{whats[0]} of {layers_text(format_indices(indices))}")
        yield make_finding("INV091", subject, message, evidence=["config.json", "headers"])


def _left_out(seen: Seen, layers: Sequence[int]) -> bool:
    """Whether the config lists these layers as such that something was dropped from."""
    for key, value in seen.facts.text.items():
        if _DROPPED.search(key) and isinstance(value, list | tuple):
            named = value if all(type(item) is int for item in value) else [
                index for index, item in enumerate(value) if item
            ]  # fmt: skip
            if set(layers) <= set(named):
                return True
    return False


def _layers(seen: Seen, layers: Sequence[int]) -> str:
    """`layer 3 has`, `layers 1-2 have`, `all 6 layers have`."""
    if len(layers) == 1:
        return f"layer {layers[0]} has"
    if len(layers) == len(seen.stack):
        return f"all {len(layers):,} layers have"
    return f"layers {format_indices(layers)} have"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and no {names[-1]}"


def _arrives(seen: Seen, layer: LayerCount) -> bool:
    """Whether some tensor of the layer is in a file that is still to come."""
    return layer.index in seen.awaited.stacks.get(layer.name.rpartition(".")[0], set())


def _against_peers(
    seen: Seen, layers: Sequence[LayerCount], told: Mapping[int, Set[str]]
) -> Iterable[Finding]:
    """What most layers of the same stated kind have."""
    weights = {layer.index: _weights(layer) for layer in layers}
    due = {layer: {plain_name(text) for text, held in seen.awaited.layers.items() if layer in held}
           for layer in weights}  # fmt: skip
    holes: dict[tuple[int, ...], list[str]] = {}
    for name in sorted(set().union(*weights.values())):
        lacking = tuple(index for index, held in weights.items() if name not in held | due[index])
        if 0 < len(lacking) * 2 < len(layers):
            holes.setdefault(lacking, []).append(name)
    for lacking, names in holes.items():
        lost = [name for name in names if _is_hole(seen, name, lacking, weights)]
        for name in names:
            few = len(lacking) * 4 < len(layers)
            if name not in lost and few:
                where, others = format_indices(lacking), len(layers) - len(lacking)
                message = f"layers {where} lack {name}, which {others} others have"
                yield make_finding("INV028", Subject(kind="tensor", name=name), message)
        if lost and not all(told.get(index) and _is_projection(lost) for index in lacking):
            yield _hole(lost, lacking, len(layers) - len(lacking))


def _hole(names: Sequence[str], lacking: Sequence[int], others: int) -> Finding:
    where = f"layer {lacking[0]} lacks" if len(lacking) == 1 else f"layers {format_indices(lacking)} lack"
    more = f" and {len(names) - 1} more weights" if len(names) > 1 else ""
    message = f"{where} {names[0]}{more}, which {_number(others)} of the same stated kind"
    return make_finding("INV091", Subject(kind="tensor", name=names[0]), message, evidence=list(names[:20]))


def _number(others: int) -> str:
    return "the other layer has" if others == 1 else f"the {others} other layers have"


def _is_projection(names: Sequence[str]) -> bool:
    """Whether all of them are such as the layer's places were asked for."""
    return all(_PROJECTIONS & set(name.split(".")) or ".gate." in name for name in names)


def _is_hole(seen: Seen, name: str, lacking: Sequence[int], weights: Mapping[int, Set[str]]) -> bool:
    """Whether a weight is lost, and not left out by an architecture whose layers differ."""
    last = name.rpartition(".")[2]
    if last == "bias" or last.endswith(("_bias", "scale", "correction_bias")):
        return False
    if _explained(seen, lacking, weights):
        return False
    if is_known_family(seen.facts):
        return True
    if len(lacking) * 4 >= len(weights):
        return False
    if {0, max(weights)} & set(lacking):  # first and last layers are often made otherwise
        return bool(_PROJECTIONS & set(name.split(".")))
    return len(lacking) == 1 or not _regular(lacking)


def _regular(indices: Sequence[int]) -> bool:
    """Whether they are a pattern over the depth: every n-th, or a run of several up to the end."""
    steps = {later - earlier for earlier, later in pairwise(indices)}
    return len(indices) > 2 and len(steps) == 1


def _explained_at_all(seen: Seen) -> bool:
    """Whether the config says that layers are made one by one."""
    return any(_says(part.get(key)) for part in (seen.facts.text, seen.facts.config) for key in _EXPLAIN)


def _says(value: Any) -> bool:
    return value not in (None, False, 0, 1, [], {})


def _explained(seen: Seen, lacking: Sequence[int], weights: Mapping[int, Set[str]]) -> bool:
    """Whether a list of the config tells these layers from the others."""
    if _explained_at_all(seen):
        return True
    number = seen.facts.architecture.layers
    rest = set(weights) - set(lacking)
    for key, value in seen.facts.text.items():
        if not isinstance(value, list | tuple) or "token" in key:
            continue
        if len(value) == number and max(weights) < number:
            words = [repr(item) for item in value]
            few = len(set(words)) <= max(2, number // 2)  # of a value of its own each, nothing follows
            if few and not {words[i] for i in lacking} & {words[i] for i in rest}:
                return True
        elif value and all(type(item) is int for item in value):
            named = set(value)
            if named & set(weights) in (set(lacking), rest):
                return True
    return False


def _weights(layer: LayerCount) -> set[str]:
    """The layer's weights by pattern, whatever precision they are packed in."""
    return {plain_name(item.group.pattern.text) for item in layer.groups if item.place.counts}


def plain_name(name: str) -> str:
    """A packed weight's pattern as that of the plain one."""
    return name.removesuffix("_packed").replace(".qweight", ".weight")
