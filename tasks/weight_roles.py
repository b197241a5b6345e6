"""Which part of a model a weight plays, from its name: the one rule that every stage uses."""

from __future__ import annotations

import re
from collections.abc import Set

_ATTENTION = frozenset({
    "self_attn", "attn", "attention", "self_attention", "linear_attn", "mixer", "mamba", "mamba2", "ssm",
    "kda", "temporal_block", "time_mix", "cross_attn", "crossattention", "encoder_attn", "attn_block",
    "delta_net", "gdn", "indexer", "compressor", "conv", "short_conv", "selfattention", "encdecattention",
    "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "qkv", "wqkv", "wq", "wk", "wv", "wo",
    "query_key_value", "c_attn", "sinks", "mlstm_layer", "slstm_layer", "attn1", "attn2",
    "multi_head_attention", "attentions", "cross_attn_attn_gate", "cross_attn_mlp_gate",
})  # fmt: skip
_DENSE = frozenset({
    "mlp", "feed_forward", "feedforward", "ffn", "fc1", "fc2", "gate_proj", "up_proj", "down_proj",
    "gate_up_proj", "dense_h_to_4h", "dense_4h_to_h", "c_fc", "ffn_gate", "ffn_up", "ffn_down",
    "channel_mix", "densereludense", "w1", "w2", "w3", "intermediate", "ff",
    "per_layer_input_gate", "per_layer_projection",
})  # fmt: skip
_EMBEDDING = frozenset({
    "embed_tokens", "wte", "word_embeddings", "tok_embeddings", "token_embd", "embed_in", "wpe",
    "position_embeddings", "embed_positions", "embeddings", "embedding", "embed", "shared",
    "embed_tokens_per_layer", "token_type_embeddings", "tokens_embed", "positions_embed",
    "per_layer_model_projection", "embeddings_project", "embedding_hidden_mapping_in",
})  # fmt: skip
_HEAD = frozenset({"lm_head", "embed_out", "score", "classifier", "output_layer", "pooler", "cls",
                   "generator_lm_head", "output_projection", "vocab_projector", "vocab_transform",
                   "generator_predictions"})  # fmt: skip
_FIRST_OF_HEAD = frozenset({"output", "head", "proj_out", "decoder"})  # alone before `weight` or `bias`
_ROUTER = frozenset(
    {"router", "gate", "ffn_gate_inp", "exp_probs_b", "moe_gate", "wg", "e_score_correction_bias"}
)
_EXPERT_MODULES = frozenset({"block_sparse_moe", "moe", "experts", "expert"})
_NORM = re.compile(r"norm|^layer_scalar$|^ln(_|\d|$)|(^|_)ln$")
_MIXER_FEED_FORWARD = frozenset({"up_proj", "down_proj", "gate_proj"})


def role_of(segments: tuple[str, ...], *, experts: bool) -> str:
    """The role of a weight of a text model; what fits nothing is `unknown`.

    Args:
        segments: of its full name in lower case, the number of a layer or expert as `{i}`.
        experts: whether the model has routed experts at all.

    Returns:
        `attention`, `dense_mlp`, `expert`, `shared_expert`, `router`, `norm`, `embedding`, `head` or
        `unknown`.
    """
    module, names = segments[-2] if len(segments) > 1 else segments[-1], set(segments)
    if module == "{i}" and len(segments) > 2:  # LongCat numbers the norms of a layer
        module = segments[-3]
    if _NORM.search(module) or _NORM.search(segments[-1]):
        return "norm"
    if module == "linear" and len(segments) > 2 and _NORM.search(segments[-3]):  # an adaptive norm's own
        return "norm"
    if any(name.startswith(("shared_expert", "shared_mlp")) or "shexp" in name for name in names):
        return "shared_expert"
    expert = next((i for i, name in enumerate(segments) if name in ("experts", "expert")), None)
    router = next((i for i, name in enumerate(segments) if name in _ROUTER), None)
    if router is not None and experts and (expert is None or router < expert) and "self_attn" not in names:
        return "router"
    if names & _EXPERT_MODULES or any("_exps" in name for name in names):
        return "expert"
    return _dense_role(segments, names)


def _dense_role(segments: tuple[str, ...], names: Set[str]) -> str:
    if "mixer" in names and names & _MIXER_FEED_FORWARD:
        return "dense_mlp"
    alone = len(segments) == 2 and segments[0] in _FIRST_OF_HEAD
    if "layers" not in names and (names & _HEAD or alone or segments[0] in ("output", "head")):
        return "head"
    if any(name.startswith(("attn_", "ssm_")) for name in names):
        return "attention"
    for (
        name
    ) in segments:  # the outermost word decides: `mlp.c_proj` is no attention, `attn.w1` no feed-forward
        if name in _ATTENTION:
            return "attention"
        if name in _DENSE:
            return "dense_mlp"
        if name in _EMBEDDING:
            return "embedding"
    if segments[-3:-1] == ("output", "dense"):  # BERT: the attention's own has its word before it
        return "dense_mlp"
    if "encoder" in names and segments[-2:-1] in (("conv1",), ("conv2",)):  # whisper's way into its encoder
        return "embedding"
    return "unknown"
