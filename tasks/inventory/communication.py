"""What splitting a model makes its ranks exchange, role by role.

Tensor parallelism: one all-reduce of the residual stream behind each attention and each feed-forward block,
and a vocabulary split over the ranks for embedding and head (Shoeybi et al., Megatron-LM, arXiv:1909.08053,
section 3). Sequence parallelism: that all-reduce becomes an all-gather before and a reduce-scatter behind the
block, the same bytes (Korthikanti et al., arXiv:2205.05198, section 4.2.2). Pipeline stages hand on the
stream (Narayanan et al., arXiv:2104.04473, section 2.2). Expert parallelism: an all-to-all sends a token to
its top-k experts and one brings the results back (DeepSeek-V3 report, arXiv:2412.19437, sections 3.2.2 and
3.4; there the dispatch goes out in fp8, half of the bytes told here, and each token to four nodes at most).

A ring all-reduce of n bytes over p ranks makes each send 2(p-1)/p n, an all-gather or a reduce-scatter half
of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .activations import tensor
from .config_facts import ConfigFacts
from .record_distribution import Primitive
from .state import BYTES_PER_ELEMENT

RING_TWICE = "2(p-1)/p"
RING_ONCE = "(p-1)/p"
BLOCKS = ("attention", "dense_mlp", "shared_expert", "expert")
FEED_FORWARD = ("expert", "dense_mlp", "shared_expert")


def primitives_of(facts: ConfigFacts, roles: Sequence[str]) -> Sequence[Primitive]:
    """Every primitive that these roles need, once a role, in their order."""
    return [primitive for role in roles for primitive in _of_role(facts, role)]


def by_direction(primitives: Sequence[Primitive]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Role -> direction -> names of the primitives."""
    found: dict[str, dict[str, list[str]]] = {}
    for item in primitives:
        found.setdefault(item.role, {}).setdefault(item.parallel, []).append(item.primitive)
    return found


def _of_role(facts: ConfigFacts, role: str) -> Sequence[Primitive]:
    hidden = facts.architecture.hidden_size
    stream = tensor("B", "T", hidden)
    payload = hidden * BYTES_PER_ELEMENT

    def make(parallel: str, name: str, sent: str, why: str) -> Primitive:
        return Primitive(
            role=role, parallel=parallel, primitive=name, tensor=stream, payload_bytes_per_token=payload,
            sent=sent, why=why,
        )  # fmt: skip

    if role in BLOCKS:
        split = _SPLITS[role]
        found = [
            make("tp", "all-reduce", RING_TWICE, f"{split}; the ranks' parts are added"),
            make("sp", "all-gather", RING_ONCE, "the sequence is put together before the block"),
            make("sp", "reduce-scatter", RING_ONCE, "the parts are added and split over the sequence"),
        ]
        found += _exchange(facts, role) if role == "expert" else []
        if role in FEED_FORWARD:
            found.append(make("pp", "send/recv", "1", "the residual stream, only where a stage ends"))
        return found
    if role == "mtp":
        both = [make("tp", "all-reduce", RING_TWICE, f"{block} of the layer") for block in _MTP_BLOCKS]
        return [*both, *(_exchange(facts, role) if facts.architecture.experts else ())]
    if role == "embedding":
        why = "each rank looks up its rows of the vocabulary, the others' are zero"
        return [
            make("tp", "all-reduce", RING_TWICE, why),
            make("sp", "reduce-scatter", RING_ONCE, f"{why}; the sum is split over the sequence"),
        ]
    if role == "head":
        gathered = make("sp", "all-gather", RING_ONCE, "the sequence is put together before the head")
        return [_logits(facts), gathered]
    return []


_MTP_BLOCKS = ("attention", "feed-forward")
_SPLITS = {
    "attention": "heads are split: q, k, v by columns, o by rows (a latent and KV heads fewer than ranks are "
    "kept by every rank)",
    "dense_mlp": "gate and up are split by columns, down by rows",
    "shared_expert": "gate and up are split by columns, down by rows; one all-reduce serves it and the "
    "routed experts where an engine adds them first",
    "expert": "every expert is split as a dense block is, where experts are not spread whole",
}


def _exchange(facts: ConfigFacts, role: str) -> Sequence[Primitive]:
    known = facts.architecture
    tokens = tensor(f"B*T*{known.top_k or '?'}", known.hidden_size)
    payload = known.top_k * known.hidden_size * BYTES_PER_ELEMENT
    return [
        Primitive(
            role=role, parallel="ep", primitive="all-to-all", tensor=tokens,
            payload_bytes_per_token=payload, sent=RING_ONCE, why=why,
        )
        for why in (
            "dispatch: each token goes to the ranks of its top-k experts",
            "combine: the experts' results come back to the token's rank",
        )
    ]  # fmt: skip


def _logits(facts: ConfigFacts) -> Primitive:
    vocabulary = facts.architecture.vocab_size
    return Primitive(
        role="head", parallel="tp", primitive="all-gather", tensor=tensor("B", "T", vocabulary),
        payload_bytes_per_token=vocabulary * BYTES_PER_ELEMENT, sent=RING_ONCE,
        why="each rank has the logits of its rows of the vocabulary; only tokens that are sampled need it",
    )  # fmt: skip
