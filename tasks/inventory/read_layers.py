"""The text model's layers: parameters by the tensors, kinds by the config, state by both."""

from __future__ import annotations

from collections.abc import Sequence

from .config_facts import ConfigFacts
from .contradictions import main_stack
from .counts import Counted, LayerCount, text_layers
from .layer_kinds import feed_forwards, layer_kinds
from .record import Layer
from .state import LayerState, layer_states


def read_layers(
    counted: Sequence[Counted], facts: ConfigFacts
) -> tuple[Sequence[Layer], Sequence[LayerState], str]:
    """The text model's layers by the tensors, or by the config alone where there are none."""
    found = text_layers(counted)
    stack = main_stack(found)
    number = facts.architecture.layers or len(stack)
    kinds, source = layer_kinds(facts, number)
    if not source and found:
        kinds = [_kind_by_tensors(stack, index) or kind for index, kind in enumerate(kinds)]
    states = layer_states(facts, kinds)
    by_config = feed_forwards(facts, number)
    if not found:
        bare = [LayerCount(f"model.layers.{index}", index, ()) for index in range(number)]
        return [_layer(bare[i], kinds[i], by_config[i], states[i]) for i in range(number)], states, source
    layers, kept = [], []
    for layer in found:
        known = layer.index < number
        state = states[layer.index] if known else LayerState()
        feed = "moe" if layer.has_experts else "dense" if _has_feed_forward(layer) else ""
        kept.append(state)
        layers.append(_layer(layer, kinds[layer.index] if known else "", feed, state))
    return layers, kept, source


def _kind_by_tensors(stack: Sequence[LayerCount], index: int) -> str:
    """What a layer's own tensors show where the config says nothing; empty for plain attention."""
    names = {
        segment
        for layer in stack
        if layer.index == index
        for item in layer.groups
        for segment in item.group.pattern.segments
    }
    if names & {"A_log", "ssm_a"}:
        return "linear" if "linear_attn" in names else "state_space"
    return ""


def _has_feed_forward(layer: LayerCount) -> bool:
    return any(item.place.role in ("dense_mlp", "shared_expert") for item in layer.groups)


def _layer(count: LayerCount, kind: str, feed_forward: str, state: LayerState) -> Layer:
    return Layer(
        name=_module_path(count.name),
        index=count.index,
        kind=kind,
        feed_forward=feed_forward,
        params=count.params,
        bytes=count.bytes,
        kv_bytes_per_token=state.per_token,
        window=state.window,
        state_bytes_per_sequence=state.per_sequence,
        roles=count.roles,
    )


def _module_path(name: str) -> str:
    """GGUF's `blk.3` under the name that every other room uses for that layer."""
    stack, _, index = name.rpartition(".")
    return f"model.layers.{index}" if stack == "blk" else name
