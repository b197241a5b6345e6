"""Which part a tensor plays, from its name, its neighbours' names and its shape.

Side tensors (scales, zero points, packed shapes) are found by what they stand beside, not by their suffix
alone: some models have a learnable `.scale`. What fits nothing is `unknown` and is listed, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from ..weight_roles import role_of
from .patterns import Group, Pattern

LOW_PRECISION = frozenset({"int8", "uint8", "int32", "uint32", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz",
                           "fp8_e5m2fnuz", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "int4", "int16"})  # fmt: skip

_VISION = frozenset({
    "vision_tower", "vision_model", "visual", "vision_encoder", "vision", "image_encoder", "vit",
    "vision_backbone", "vpm", "vision_embed_tokens",
})  # fmt: skip
_PROJECTOR = frozenset({
    "mm_projector", "multi_modal_projector", "projector", "connector", "aligner", "merger",
    "vision_projector", "embed_vision", "mlp1", "resampler", "patch_merger", "image_newline",
    "deepstack_merger_list",
})  # fmt: skip
_AUDIO = frozenset({
    "audio_tower", "audio_encoder", "audio_model", "speech_encoder", "audio", "embed_audio",
})  # fmt: skip
_MTP = frozenset({"mtp", "mtp_layers", "mtp_block", "nextn", "mtp_head", "nextn_predict_layers"})
_MTP_ONLY = frozenset({"eh_proj", "enorm", "hnorm", "shared_head"})

_BUFFERS = frozenset({
    "inv_freq", "position_ids", "masked_bias", "running_mean", "running_var", "num_batches_tracked",
    "rope_freqs", "cos_cached", "sin_cached", "final_logits_bias", "freqs_cis",
    "query_decay", "key_decay", "diagonal_decay", "slope_rate",  # MiniMax: from the number of heads alone
})  # fmt: skip
# Parts of a head before or beside the matrix of one row a token: transforms, poolers, heads of labels.
_NOT_OUTPUT = frozenset({"dense", "transform", "pooler", "classifier", "score", "out_proj",
                         "seq_relationship", "vocab_transform", "generator_predictions"})  # fmt: skip
_ROPE_TABLES = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})  # GGUF, below `.weight`
_TABLES = frozenset({"int64", "bool"})  # no weight is kept in these

# What may follow the name of a low-precision weight in the name of its side tensors, the longest first.
_SIDE_OF_WEIGHT = (
    "_act_per_tensor_scale", "_per_tensor_scale", "_act_pre_scale", "_activation_scale", "_global_scale",
    "_scale_second", "_offset_second", "_input_scale", "_scale_and_zero",
    "_zero_point", "_scale_inv", "_scale_bias", "_scale_2", "_scales", "_scale", "_shape",
    "_g_idx", "_offset",
)  # fmt: skip
_SIDE_IN_MODULE = frozenset({
    "scale", "scales", "biases", "qzeros", "zeros", "g_idx", "input_scale", "output_scale",
    "input_zero_point", "k_scale", "v_scale", "q_scale", "input_global_scale", "input_offset",
    "deq_scale", "quant_bias", "scale_weight", "scale_input", "scb", "weight_format", "pre_quant_scale",
    "qscale_weight", "qscale_act", "activation_scale", "act_scale", "act_scales", "smooth_scale",
    "smoothing_factor", "input_scale_ub", "scale_bias", "bias_scale", "weight_global_scale",
    "codebooks", "s", "workspace", "q_scale_max", "q_groups", "q_invperm", "q_perm", "q_group_map",
    "suh", "svh", "su", "sv", "mcg", "mul1",
})  # fmt: skip
_SIDE_BELOW_WEIGHT = frozenset({
    "absmax", "quant_map", "nested_absmax", "nested_quant_map", "_scale", "_shift", "_zero_point", "scale",
})  # fmt: skip
# Names under which a weight may stand; HQQ keeps all that is not the weight beside `W_q`.
_WEIGHT_NAMES = (
    "weight", "qweight", "weight_packed", "weight_qdata", "_weight_qdata", "W_q", "codes", "_data", "B",
    "q_weight", "trellis",
)  # fmt: skip
_HQQ = frozenset({
    "scale", "zero", "shape", "nbits", "axis", "group_size", "packing", "unpack_view_dtype", "compute_dtype",
    "view_as_float", "channel_wise", "optimize", "round_zero", "stores_quant_config", "encoded_state_dict",
    "quant_scale", "quant_zero", "offload_meta",
})  # fmt: skip
# Scales of the cache, stored in the attention itself beside no weight of their own.
SIDE_OF_CACHE = frozenset({
    "k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale", "prob_output_scale", "k_zero_point",
    "v_zero_point", "kv_cache_scale", "kv_cache_offset", "k_cache_scale", "v_cache_scale", "k_cache_offset",
    "v_cache_offset", "kv_cache_scaling_factor",
})  # fmt: skip
_GPTQ_SIDES = frozenset({"scales", "qzeros", "g_idx"})
_ROTATION = re.compile(r"^(rot|rotation|hadamard)$|_rotation$")
_WEIGHT_FORMS = ("", "_packed", "_blocks", "_qdata")


@dataclass(frozen=True)
class Place:
    """What a tensor is.

    Attributes:
        role: word of the design's vocabulary.
        owner: for a side tensor the role of the weight that it serves; else the role itself.
        part: `text`, `mtp`, `vision`, `projector` or `audio`.
        counts: whether its elements are parameters of the model.
    """

    role: str
    owner: str
    part: str
    counts: bool


@dataclass(frozen=True)
class Neighbourhood:
    """What a pattern's name alone does not tell.

    Attributes:
        dtypes: pattern text -> dtypes in which it is stored.
        modules: module text -> names of the tensors directly inside it.
        experts: whether the release has routed experts at all.
        layers: number of layers that the config states; 0 where it does not.
        mtp: whether layers beyond that number are for multi-token prediction.
        low: whether anything is stored in a floating-point type of eight bits or fewer, or packed.
    """

    dtypes: Mapping[str, Set[str]]
    modules: Mapping[str, Set[str]]
    experts: bool
    layers: int
    mtp: bool
    low: bool = False


def look_around(groups: Iterable[Group], layers: int, mtp_declared: bool) -> Neighbourhood:
    """Gathers the neighbourhood of all patterns."""
    dtypes: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for group in groups:
        text = group.pattern.text
        if text not in dtypes:
            module, _, name = text.rpartition(".")
            modules.setdefault(module, set()).add(name)
        dtypes.setdefault(text, set()).add(group.dtype)
    segments = {segment for text in dtypes for segment in text.lower().split(".")}
    experts = bool(segments & {"experts", "block_sparse_moe", "moe"}) or any("_exps" in s for s in segments)
    mtp = mtp_declared or bool(segments & _MTP_ONLY)
    low = any(held & LOW_PRECISION for held in dtypes.values())
    return Neighbourhood(dtypes, modules, experts, layers, mtp, low)


def place_groups(groups: Iterable[Group], around: Neighbourhood) -> Sequence[tuple[Group, Place]]:
    """Every group with its place, found once for those that differ in nothing but their layer."""
    known: dict[tuple[object, ...], Place] = {}
    placed = []
    for group in groups:
        beyond = _is_beyond(group.layer, around)
        key = (group.pattern.text, group.dtype, group.shape, beyond)
        place = known.get(key)
        if place is None:
            place = known[key] = place_of(group, around)
        placed.append((group, place))
    return placed


def place_of(group: Group, around: Neighbourhood) -> Place:
    """The place of a group's tensors: that of their pattern, but for layers beyond those of the config."""
    pattern = group.pattern
    part = _part(pattern, group.layer, around)
    segments = tuple(segment.lower() for segment in pattern.segments)
    if _is_buffer(segments, group.shape):
        return Place("buffer", "buffer", part, counts=False)
    served = _served_weight(pattern, around) or _lost_weight(group, around)
    if served is not None:
        owner = _role(part, tuple(segment.lower() for segment in served), around)
        return Place("aux", owner, part, counts=False)
    if group.dtype in _TABLES:  # DeepSeek-V4's token-to-expert table
        return Place("buffer", "buffer", part, counts=False)
    role = _role(part, segments, around)
    return Place(role, role, part, counts=True)


def is_output_matrix(group: Group, place: Place) -> bool:
    """Whether it gives one number a token of the vocabulary: the head itself, no transform before it."""
    segments = {segment.lower() for segment in group.pattern.segments}
    if place.role != "head" or place.part != "text" or not group.elements or segments & _NOT_OUTPUT:
        return False
    return group.pattern.segments[-1].lower() != "bias"


def _part(pattern: Pattern, layer: int | None, around: Neighbourhood) -> str:
    segments = {segment.lower() for segment in pattern.segments}
    outer = {segment.lower() for segment in pattern.stack.split(".")} if pattern.stack else segments
    first = pattern.segments[0]  # `v.` and `mm.` are GGUF's names of a vision tower and its projector
    if outer & _AUDIO:
        return "audio"
    if outer & _VISION or first == "v":
        return "projector" if segments & _PROJECTOR else "vision"
    if outer & _PROJECTOR or first == "mm":
        return "projector"
    return "mtp" if segments & _MTP or _is_beyond(layer, around) else "text"


def _is_beyond(layer: int | None, around: Neighbourhood) -> bool:
    """Whether a layer lies behind those of the config and predicts further tokens."""
    return layer is not None and 0 < around.layers <= layer and around.mtp


def _served_weight(pattern: Pattern, around: Neighbourhood) -> tuple[str, ...] | None:
    """The segments of the weight that this tensor serves; None where it is no side tensor."""
    module, _, name = pattern.text.rpartition(".")
    siblings = around.modules.get(module, frozenset())
    for suffix in _SIDE_OF_WEIGHT:
        if not name.endswith(suffix):
            continue
        base = name.removesuffix(suffix)
        if any(_is_low(f"{module}.{base}{form}", around) for form in _WEIGHT_FORMS):
            return (*module.split("."), base)
        if base == "weight":  # no other reading is known, whatever became of the weight itself
            return (*module.split("."), base)
    if module.endswith(".weight") and name in _SIDE_BELOW_WEIGHT:
        return pattern.segments[:-1]
    if "quant_state" in pattern.segments[1:]:  # bitsandbytes: `weight.quant_state.bitsandbytes__nf4`
        return pattern.segments[: pattern.segments.index("quant_state", 1)]
    if "W_q" in siblings and name in _HQQ:
        return (*module.split("."), "weight")
    if name.lower() in _SIDE_IN_MODULE:
        weights = [sibling for sibling in _WEIGHT_NAMES if sibling in siblings]
        if any(_is_low(f"{module}.{weight}", around) for weight in (*weights, "weight._data")):
            return (*module.split("."), *weights[:1])
    return None


def _lost_weight(group: Group, around: Neighbourhood) -> tuple[str, ...] | None:
    """The same for a tensor that can be nothing but a side tensor, though no weight is beside it."""
    module, _, name = group.pattern.text.rpartition(".")
    path = tuple(module.split(".")) if module else ()
    if group.dtype == "e8m0" or (group.dtype == "uint8" and name.endswith("_scales")):
        return (*path, name.removesuffix("_scales").removesuffix("_scale"))
    if name in SIDE_OF_CACHE and (around.low or prod(group.shape) <= 1):
        return (*path, name)
    siblings = around.modules.get(module, frozenset())
    if name in _GPTQ_SIDES and len(siblings & _GPTQ_SIDES) > 1:
        return (*path, "qweight")
    if any(_ROTATION.search(segment) for segment in group.pattern.segments) and len(group.shape) == 2:
        return (*path, name)
    return None


def _is_low(text: str, around: Neighbourhood) -> bool:
    return bool(around.dtypes.get(text, frozenset()) & LOW_PRECISION)


def _is_buffer(segments: tuple[str, ...], shape: tuple[int, ...]) -> bool:
    """Whether it is a table that follows from the config, whatever its dtype."""
    if segments[-1] in _BUFFERS or "rotary_emb" in segments or segments[-2:] == ("rope", "freqs"):
        return True
    return bool(_ROPE_TABLES & set(segments[-2:])) or _is_mask(segments, shape)


def _is_mask(segments: tuple[str, ...], shape: tuple[int, ...]) -> bool:
    """A causal mask stored as `attn.bias` of shape [1, 1, n, n], as GPT-2 checkpoints have it."""
    return segments[-2:] == ("attn", "bias") and len(shape) == 4


def _role(part: str, segments: tuple[str, ...], around: Neighbourhood) -> str:
    if part in ("vision", "projector", "mtp"):
        return part
    return "unknown" if part == "audio" else role_of(segments, experts=around.experts)
