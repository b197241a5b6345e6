"""Position encoding from the config's dialects, and stored tables of frequencies against it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..finding import Finding, Subject, make_finding
from .config_facts import ConfigFacts, is_count
from .counts import Counted
from .index_sets import format_indices
from .record import Layer
from .record_structure import Position

_THETA = ("rope_theta", "rotary_emb_base", "rope_base", "rotary_base", "global_rope_theta")
_LOCAL_THETA = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta", "rope_theta_swa")
_PARTIAL = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rope_pct")
_FULL_WITHOUT = ("cohere2", "exaone4")  # their classes rotate in the sliding layers only


def read_position(facts: ConfigFacts, layers: Sequence[Layer]) -> Position:
    """How positions enter, 0 and empty where the config does not say."""
    text, architecture = facts.text, facts.architecture
    parameters, local = _parameters(text)
    theta = _number(text, *_THETA) or _number(parameters, "rope_theta")
    kind = architecture.position.partition(":")[0]
    if not kind and (theta or text.get("qk_rope_head_dim")):
        kind = "rope"
    if not kind and is_count(text.get("relative_attention_num_buckets")):
        kind = "relative"
    word = parameters.get("rope_type", parameters.get("type"))
    sections = parameters.get("mrope_section")
    listed = isinstance(sections, list) and all(is_count(item) for item in sections)
    rotary, partial = _rotary(facts, parameters) if kind == "rope" else (0, 0.0)
    without = _without(facts, layers)
    if without and len(without) == len(layers):
        kind = "none"
    return Position(
        kind=kind,
        theta=theta,
        local_theta=_number(text, *_LOCAL_THETA) or _number(local, "rope_theta"),
        scaling=word if isinstance(word, str) and word != "default" else "mrope" if listed else "",
        factor=_number(parameters, "factor", "scaling_factor"),
        original_positions=_count(parameters, text),
        rotary_dim=rotary,
        partial=partial,
        sections=tuple(int(item) for item in sections or ()) if listed else (),
        nope_layers=format_indices(without),
    )


def stored_tables(counted: Iterable[Counted], facts: ConfigFacts, position: Position) -> Iterable[Finding]:
    """Stored frequency tables that have not one entry for each rotated pair (Kimi-K2: 56 for 32).

    A stored table shows that the model rotates, also where the config leaves that to its class.
    """
    rotary = position.rotary_dim or _rotary(facts, _parameters(facts.text)[0])[0]
    expected = rotary // 2
    odd: dict[tuple[str, int], list[Counted]] = {}
    for item in counted:
        group = item.group
        if group.pattern.segments[-1] == "inv_freq" and item.place.part in ("text", "mtp") and expected:
            size = math.prod(group.shape)
            if size != expected:
                odd.setdefault((group.pattern.text, size), []).append(item)
    for (pattern, size), items in odd.items():
        number = sum(item.group.count for item in items)
        message = (
            f"{pattern} is stored {number} times with {size} entries in {items[0].group.dtype}; "
            f"{rotary} rotated elements of a head need {expected}"
        )
        evidence = [f"header of {items[0].group.example}", "config.json"]
        yield make_finding("INV074", Subject(kind="tensor", name=pattern), message, evidence=evidence)


def _parameters(text: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Parameters of the full layers and, where they have their own, of the sliding ones."""
    found: Mapping[str, Any] = {}
    local: Mapping[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        part = text.get(key)
        if not isinstance(part, Mapping):
            continue
        full, sliding = part.get("full_attention"), part.get("sliding_attention")
        if isinstance(full, Mapping) or isinstance(sliding, Mapping):  # transformers 5, one set a layer type
            local = sliding if isinstance(sliding, Mapping) else {}
            part = full if isinstance(full, Mapping) else {}
        found = {**found, **part}
    return found, local


def _rotary(facts: ConfigFacts, parameters: Mapping[str, Any]) -> tuple[int, float]:
    """Rotated elements of a head, and their share of it."""
    text, head = facts.text, facts.architecture.head_dim
    stated = facts.integer("qk_rope_head_dim", "rotary_dim")
    share = _number(text, *_PARTIAL) or _number(parameters, *_PARTIAL)
    if stated:
        return stated, stated / head if head >= stated else 0.0
    if not head:
        return 0, share
    return int(head * (share or 1.0)), share or 1.0


def _without(facts: ConfigFacts, layers: Sequence[Layer]) -> Sequence[int]:
    """Layers without positions."""
    text, indices = facts.text, [layer.index for layer in layers]
    flags = facts.integers("no_rope_layers")
    if flags and len(flags) == len(indices):  # Llama 4, SmolLM3: 1 marks a layer that rotates
        return [index for index in indices if index < len(flags) and not flags[index]]
    every = facts.integer("no_rope_layer_interval", "nope_layer_interval")
    if every:
        return [index for index in indices if (index + 1) % every == 0]
    if text.get("mla_use_nope") is True:  # Kimi-Linear: latent layers do not rotate, linear ones never do
        return indices
    if facts.text_type in _FULL_WITHOUT and any(layer.kind == "sliding" for layer in layers):
        return [layer.index for layer in layers if layer.kind == "full"]
    return []


def _count(parameters: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    for part in (parameters, text):
        value = part.get("original_max_position_embeddings", 0)
        if is_count(value):
            return int(value)
    return 0


def _number(part: Mapping[str, Any], *keys: str) -> float:
    """The first of these keys that holds a finite number above 0; else 0."""
    for key in keys:
        value = part.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300:
            return float(value)
    return 0.0
