"""The weights that a layer cannot do without, by the config's words for it: places, each under any name.

Only names by which transformers and the usual formats call them; a layer that has none of them under such
names says nothing about the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from .arithmetic import MODEL_TYPES
from .config_facts import ConfigFacts
from .counts import Counted, LayerCount

_FUSED = ("qkv_proj", "W_pack", "query_key_value", "Wqkv", "wqkv", "c_attn", "qkv")
_QUERY = {"query projection": ("q_proj", "wq", *_FUSED)}
_PLAIN: Mapping[str, Sequence[str]] = {
    **_QUERY,
    "key projection": ("k_proj", "wk", *_FUSED),
    "value projection": ("v_proj", "wv", *_FUSED),
    "output projection": ("o_proj", "wo", "dense", "out_proj"),
}
_LATENT: Mapping[str, Sequence[str]] = {
    "key and value compression": ("kv_a_proj_with_mqa", "kv_a_proj", "fused_qkv_a_proj_with_mqa", "wkv_a"),
    "key and value expansion": ("kv_b_proj", "wkv_b", "k_b_proj", "v_b_proj"),
    "output projection": ("o_proj", "wo"),
}
_QUERY_RANK: Mapping[str, Sequence[str]] = {
    "query compression": ("q_a_proj", "fused_qkv_a_proj_with_mqa", "wq_a"),
    "query expansion": ("q_b_proj", "wq_b"),
}
_GATED: Mapping[str, Sequence[str]] = {
    "gate projection": ("gate_proj", "gate_up_proj", "w1", "w1_w3", "fc1"),
    "up projection": ("up_proj", "gate_up_proj", "w3", "w1_w3", "fc1"),
    "down projection": ("down_proj", "w2", "fc2"),
}
_ATTENDING = ("full", "sliding", "chunked")
_BLOCK_FORMS = ("_packed", "_blocks", "_qdata")
# Their layers have more words than these, or differ from one to the next by more than the config's lists say.
_KNOWN = MODEL_TYPES - {"qwen3_next"}


def is_known_family(facts: ConfigFacts) -> bool:
    """Whether the config names a family whose layers are known to hold all these weights."""
    return facts.text_type in _KNOWN


def missing_slots(layer: LayerCount, kind: str, feed_forward: str, facts: ConfigFacts) -> Sequence[str]:
    """What a layer of a known family lacks, in words; empty for none.

    Args:
        layer: as stored.
        kind: its attention by the config.
        feed_forward: `dense` or `moe`, by the config.
        facts: the config.
    """
    counts = [item for item in layer.groups if item.place.counts]
    attention = _words(item for item in counts if item.place.role == "attention")
    dense = _words(item for item in counts if item.place.role == "dense_mlp")
    expert = _words(item for item in counts if item.place.role == "expert")
    found: list[str] = []
    needed = _attention(kind, facts)
    if needed:
        found += _lacking(needed, attention, "attention")
    if feed_forward == "moe":
        found += _lacking(_GATED, expert, "routed experts")
        routes = any(
            item.place.role == "router" and item.group.pattern.segments[-1] != "bias"
            and "bias" not in item.group.pattern.segments[-1]
            for item in counts
        )  # fmt: skip
        found += [] if routes else ["router"]
    elif feed_forward == "dense":
        found += _lacking(_GATED, dense, "feed-forward")
    return found


def _attention(kind: str, facts: ConfigFacts) -> Mapping[str, Sequence[str]]:
    if kind in _ATTENDING:
        return _PLAIN
    if kind in ("mla", "sparse_indexed"):
        return {**_LATENT, **(_QUERY_RANK if facts.integer("q_lora_rank") else _QUERY)}
    return {}


def _lacking(needed: Mapping[str, Sequence[str]], words: Set[str], whole: str) -> Sequence[str]:
    """The places that none of the names fills; the whole where nothing of it is there."""
    if not words:
        return [whole]
    gone = [slot for slot, names in needed.items() if not words & set(names)]
    return [] if len(gone) == len(needed) else [f"{slot} of the {whole}" for slot in gone]


def _words(items: Iterable[Counted]) -> set[str]:
    """The segments of weights' names, packed ones as their plain ones; biases show nothing."""
    found: set[str] = set()
    for item in items:
        segments = item.group.pattern.segments
        last = segments[-1]
        if last == "bias" or last.endswith("_bias"):
            continue
        for form in _BLOCK_FORMS:
            last = last.removesuffix(form)
        found |= {*segments[:-1], last}
    return found
