"""Norms, activation, attention, routing and dtype of the text model, by config and tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..finding import Finding, Subject, make_finding
from .config_facts import ConfigFacts, short_dtype
from .contradictions import plain_dtype
from .counts import Counted
from .layer_pattern import layer_pattern
from .positions import read_position, stored_tables
from .record_structure import Activation, Attention, DtypeStatement, Norms, Router, Structure
from .seen import Part, Seen

_QK_NORM = re.compile(r"^(q|k|qk|query|key)_?(layer)?_?(norm|ln)\d?$|^attn_[qk]_norm$")
_GATED = frozenset({"gate_proj", "gate_up_proj", "w3", "ffn_gate", "gate_and_up_proj", "wi_1", "gate_up",
                    "linear_v", "up_gate_proj", "gate_up_proj_blocks", "ffn_gate_exps", "w13"})  # fmt: skip
_GATED_WORDS = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_new": "geglu", "relu": "reglu",
                "gelu_pytorch_tanh": "geglu", "quick_gelu": "geglu", "gelu_tanh": "geglu"}  # fmt: skip
_BIASED = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o", "qkv_proj": "qkv",
    "query_key_value": "qkv", "c_attn": "qkv", "wqkv": "qkv", "qkv": "qkv", "dense": "o", "c_proj": "o",
    "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "attn_qkv": "qkv", "wo": "o",
    "query": "q", "key": "k", "value": "v", "query_proj": "q", "key_proj": "k", "value_proj": "v",
    "q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "o", "in_proj": "qkv",
    "w_pack": "qkv", "q_a_proj": "q_a", "kv_a_proj_with_mqa": "kv_a", "q_b_proj": "q_b", "kv_b_proj": "kv_b",
}  # fmt: skip
_BIAS_KEYS = ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "use_attention_bias")
_HARDWIRED = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen")
_SCORING = ("scoring_func", "score_func", "score_function", "moe_router_activation_func",
            "moe_score_function", "moe_router_score_function", "router_score_function",
            "router_scoring_func")  # fmt: skip
_CORRECTION = re.compile(r"score_correction_bias$|^correction_bias$|^expert_bias$|^exp_probs_b$")
_CONFIG = Subject(kind="config", name="config.json")


def read_structure(seen: Seen) -> Part:
    """The part of the inventory that is about the text model's structure."""
    facts, counted = seen.facts, [item for item in seen.counted if item.place.part == "text"]
    structure = Structure(
        norms=_norms(facts, counted),
        activation=_activation(facts, counted),
        position=read_position(facts, seen.layers),
        attention=_attention(facts, counted),
        router=_router(facts, counted),
        layer_pattern=layer_pattern(seen.layers),
        dtype=_dtype(seen),
    )
    findings = [
        *stored_tables(seen.counted, seen.facts, structure.position),
        *_bias_findings(seen, structure.attention),
        *_dtype_findings(seen, structure.dtype),
    ]
    where = f"config.json#{facts.pointer}"
    return Part(
        {"structure": structure},
        findings,
        {
            "/structure": f"{where} and headers",
            "/structure/norms/dtypes": "computed:headers",
            "/structure/position": f"{where} rope_parameters, rope_scaling and their like",
            "/structure/layer_pattern": "computed:kinds of /layers",
        },
    )


def _norms(facts: ConfigFacts, counted: Sequence[Counted]) -> Norms:
    norms = [item.group for item in counted if item.place.role == "norm"]
    dtypes: dict[str, int] = {}
    for group in norms:
        dtypes[group.dtype] = dtypes.get(group.dtype, 0) + group.count
    segments = {segment.lower() for group in norms for segment in group.pattern.segments}
    biases = any(group.pattern.segments[-1] == "bias" for group in norms)
    text = facts.text
    if "rms_norm_eps" in text or text.get("rmsnorm") is True or "rms_norm" in text:
        kind = "rms"
    elif any(key in text for key in ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon")) or biases:
        kind = "layer"
    else:
        kind = "rms" if norms else ""
    return Norms(
        kind=kind,
        eps=facts.architecture.norm_eps,
        qk=any(_QK_NORM.search(segment) for segment in segments),
        biases=biases,
        dtypes=dict(sorted(dtypes.items())),
    )


def _activation(facts: ConfigFacts, counted: Sequence[Counted]) -> Activation:
    word = facts.architecture.activation
    feed = [item for item in counted if item.place.owner in ("dense_mlp", "expert", "shared_expert")]
    names = {segment.lower() for item in feed for segment in item.group.pattern.segments}
    gated = bool(names & _GATED) if feed else word in ("silu", "swish")  # no published plain one has silu
    limit = _real(facts.text, "swiglu_limit", "activation_limit", "act_limit")
    kind = _GATED_WORDS.get(word, word) if gated else word
    if facts.text_type == "gpt_oss" or word in ("swigluoai", "swiglu_oai"):
        kind = "swiglu_oai"
    return Activation(word=word, kind=kind, limit=limit)


def _attention(facts: ConfigFacts, counted: Sequence[Counted]) -> Attention:
    architecture = facts.architecture
    attention = [item.group.pattern for item in counted if item.place.role == "attention"]
    biases = {
        _BIASED[pattern.segments[-2].lower()]
        for pattern in attention
        if pattern.segments[-1] == "bias" and len(pattern.segments) > 1
        if pattern.segments[-2].lower() in _BIASED
    }
    stated = next((facts.text[key] for key in _BIAS_KEYS if isinstance(facts.text.get(key), bool)), None)
    return Attention(
        heads=architecture.heads,
        kv_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        value_dim=facts.integer("v_head_dim"),
        nope_dim=facts.integer("qk_nope_head_dim"),
        rope_dim=facts.integer("qk_rope_head_dim"),
        q_rank=facts.integer("q_lora_rank"),
        kv_rank=facts.integer("kv_lora_rank"),
        sinks=any(
            "sink" in pattern.segments[-1] or "attn_sinks" in pattern.segments for pattern in attention
        ),
        biases=tuple(sorted(biases)),
        config_bias=stated,
        soft_cap=_real(facts.text, "attn_logit_softcapping", "attention_logit_cap"),
    )


def _router(facts: ConfigFacts, counted: Sequence[Counted]) -> Router | None:
    routers = [item.group.pattern.segments[-1].lower() for item in counted if item.place.role == "router"]
    if not facts.architecture.experts and not routers:
        return None
    text = facts.text
    scoring = next((text[key] for key in _SCORING if isinstance(text.get(key), str)), "")
    flags = (text.get(key) for key in ("norm_topk_prob", "moe_renormalize", "renormalize", "route_norm"))
    return Router(
        scoring=scoring,
        groups=facts.integer("n_group", "num_expert_group", "n_expert_groups"),
        top_groups=facts.integer("topk_group", "n_limited_groups"),
        top_k=facts.architecture.top_k,
        normalised=next((flag for flag in flags if isinstance(flag, bool)), None),
        scaling=_real(text, "routed_scaling_factor", "moe_routed_scaling_factor", "router_scaling_factor",
                      "moe_router_topk_scaling_factor", "route_scale"),
        bias=next((name for name in routers if _CORRECTION.search(name)), ""),
    )  # fmt: skip


def _dtype(seen: Seen) -> DtypeStatement:
    """Every statement of a dtype against the headers."""
    facts, headers = seen.facts, plain_dtype(seen.counted)
    said: dict[str, str] = {}
    for part, where in ((facts.config, ""), (facts.text, facts.pointer)):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str):
                said.setdefault(f"config.json#{where}/{key}", short_dtype(part[key]))
    source, config = next(iter(said.items()), ("", ""))
    if len(set(said.values())) > 1:
        verdict = "both"
        source = ", ".join(f"{place} {word}" for place, word in said.items())
    elif not headers:
        verdict = "unknown"
    elif not config or config == "auto":
        verdict = "absent"
    else:
        verdict = "agrees" if config == headers else "contradicts"
    return DtypeStatement(config=config, source=source, headers=headers, verdict=verdict)


def _dtype_findings(seen: Seen, stated: DtypeStatement) -> Iterable[Finding]:
    if stated.verdict == "absent" and seen.release.checkpoint.format == "safetensors" and seen.facts.config:
        message = f"the config states no dtype; the headers hold most plain weights in {stated.headers}"
        yield make_finding("INV073", _CONFIG, message, evidence=["config.json", "headers"])
    if stated.verdict == "both":
        held = f", the headers hold {stated.headers}" if stated.headers else ""
        message = f"the config states its dtype more than once and differently: {stated.source}{held}"
        yield make_finding("INV073", _CONFIG, message, evidence=["config.json"], severity="warning")


def _bias_findings(seen: Seen, attention: Attention) -> Iterable[Finding]:
    key = next((key for key in _BIAS_KEYS if isinstance(seen.facts.text.get(key), bool)), "")
    kinds = {layer.kind for layer in seen.layers}
    # GPTQ writers add zero biases to every layer, and some classes have theirs whatever the config says.
    if not key or seen.observed.scheme in ("gptq", "awq") or not seen.counted:
        return
    if seen.facts.architecture.model_type in _HARDWIRED or not kinds <= {"full", "sliding", "chunked"}:
        return
    if not any(item.place.role == "attention" and item.place.part == "text" for item in seen.counted):
        return  # the key is of a tower whose tensors are not told apart here
    inputs = sorted(set(attention.biases) & {"q", "k", "v", "qkv"})
    if attention.config_bias is bool(inputs):
        return
    stored = f"stores biases of {', '.join(inputs)}" if inputs else "stores no bias of its projections"
    message = f"{key} is {str(attention.config_bias).lower()}, yet attention {stored}"
    place = f"config.json#{seen.facts.pointer}/{key}"
    yield make_finding("INV079", Subject(kind="config", name=place), message, evidence=[place, "headers"])


def _real(part: Mapping[str, Any], *keys: str) -> float:
    for key in keys:
        value = part.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300:
            return float(value)
    return 0.0
