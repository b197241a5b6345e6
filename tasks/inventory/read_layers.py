"""The text model's layers: parameters by the tensors, kinds by the config, state by both."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .config_facts import ConfigFacts
from .counts import Counted, LayerCount, main_stack, text_layers
from .layer_kinds import feed_forwards, layer_kinds
from .record import Layer
from .state import ENCODER, LayerState, layer_states, with_cross_attention

# Model types of encoders alone, by transformers' classes.
_ENCODERS = frozenset({
    "bert", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "electra",
    "deberta", "deberta-v2", "modernbert", "distilbert", "albert", "mpnet", "nomic_bert", "eurobert", "esm",
    "ernie", "layoutlm", "layoutlmv2", "layoutlmv3", "longformer", "big_bird", "funnel", "convbert",
    "megatron-bert", "mobilebert", "squeezebert", "xmod", "new", "neobert", "jina_bert", "bge", "rembert",
    "vit", "vit_mae", "vit_msn", "deit", "beit", "dinov2", "dinov2_with_registers", "dinov3_vit", "ijepa",
    "data2vec-text", "data2vec-audio", "data2vec-vision", "clip", "clip_text_model", "clip_vision_model",
    "siglip", "siglip2", "siglip_text_model", "siglip_vision_model", "wav2vec2", "wav2vec2-bert", "hubert",
    "wavlm", "unispeech", "unispeech-sat", "videomae", "vivit", "timesformer",
    "audio-spectrogram-transformer",
})  # fmt: skip
_CROSS = frozenset({"encoder_attn", "encdecattention", "crossattention", "cross_attn", "cross_attention"})


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
        if is_encoder(facts, "", ()):
            states = [ENCODER] * number
        return [_layer(bare[i], kinds[i], by_config[i], states[i]) for i in range(number)], states, source
    layers, kept = [], []
    stacks = {layer.name.rpartition(".")[0] for layer in found}
    crossing = {stack for stack in stacks if _attends_encoder(found, stack)}
    for layer in found:
        known = layer.index < number
        state = states[layer.index] if known else LayerState()
        stack_name = layer.name.rpartition(".")[0]
        if is_encoder(facts, stack_name, stacks):
            state = ENCODER
        elif stack_name in crossing:
            state = with_cross_attention(facts, state)
        feed = "moe" if layer.has_experts else "dense" if _has_feed_forward(layer) else ""
        kept.append(state)
        kind = kinds[layer.index] if known else "full" if state is ENCODER else ""
        layers.append(_layer(layer, kind, feed, state))
    return layers, kept, source


def is_encoder(facts: ConfigFacts, stack: str, stacks: Collection[str]) -> bool:
    """Whether the layers of a stack see their whole input at once, so that they keep nothing.

    The word alone does not tell: ChatGLM calls its decoder `transformer.encoder`.
    """
    if facts.text.get("is_decoder") is True:
        return False
    if facts.architecture.model_type in _ENCODERS or facts.text_type in _ENCODERS:
        return True
    segments = stack.split(".")
    both = any("decoder" in other.split(".") for other in stacks)
    return "encoder" in segments and "decoder" not in segments and both


def _attends_encoder(found: Sequence[LayerCount], stack: str) -> bool:
    return any(
        _CROSS & {segment.lower() for segment in item.group.pattern.segments}
        for layer in found
        if layer.name.rpartition(".")[0] == stack
        for item in layer.groups
    )


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
