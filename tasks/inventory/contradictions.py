"""What config and tensors say against each other; shown as findings, resolved nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..finding import Finding, Subject, make_finding
from .counts import Counted, LayerCount
from .index_sets import format_indices
from .roles import LOW_PRECISION
from .seen import Seen

# Embeddings of tokens, as against those of positions or types.
_TOKEN_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "token_embd", "tok_embeddings"})
_CONFIG = Subject(kind="config", name="config.json")


def contradictions(seen: Seen) -> Sequence[Finding]:
    """All findings about a release that has weights."""
    checks = (
        _dtype,
        _tied,
        _missing_layers,
        _missing_experts,
        _sizes,
        _mtp,
        _irregular,
    )
    return tuple(finding for check in checks for finding in check(seen))


def stored_tied(counted: Iterable[Counted]) -> bool | None:
    """Whether the tensors show a tied head: an embedding and no head; None where there is no embedding."""
    roles = {item.place.role for item in counted if item.place.part == "text"}
    return None if "embedding" not in roles else "head" not in roles


def plain_dtype(counted: Iterable[Counted]) -> str:
    """The dtype that holds most of the weights which are not in low precision; empty for none."""
    sizes: dict[str, int] = {}
    for item in counted:
        if item.place.counts and item.group.dtype not in LOW_PRECISION:
            sizes[item.group.dtype] = sizes.get(item.group.dtype, 0) + item.params
    return max(sorted(sizes), key=sizes.__getitem__, default="")


def _dtype(seen: Seen) -> Iterable[Finding]:
    declared, stored = seen.facts.architecture.dtype, plain_dtype(seen.counted)
    if declared and stored and declared != stored and stored in ("fp32", "fp16", "bf16", "fp64"):
        source = seen.facts.sources["/architecture/dtype"]
        message = f"the config states {declared}, the headers hold most plain weights in {stored}"
        yield make_finding("INV017", _CONFIG, message, evidence=[source])


def _tied(seen: Seen) -> Iterable[Finding]:
    config, tensors = seen.facts.tied, stored_tied(seen.counted)
    if config is True and tensors is False:
        head = next(item for item in seen.counted if item.place.role == "head")
        subject = Subject(kind="tensor", name=head.group.example)
        message = f"tie_word_embeddings is true, yet {head.group.example} {list(head.group.shape)} is stored"
        yield make_finding("INV018", subject, message, evidence=["config.json#/tie_word_embeddings"])
    if config is False and tensors is True:
        message = "tie_word_embeddings is false, yet no head is stored"
        yield make_finding("INV019", _CONFIG, message, evidence=["config.json#/tie_word_embeddings"])


def _missing_layers(seen: Seen) -> Iterable[Finding]:
    stated = seen.facts.architecture.layers
    stack = main_stack(seen.stack)
    missing = set(range(stated)) - {layer.index for layer in stack}
    if stack and missing:
        name = stack[0].name.rpartition(".")[0]
        which = format_indices(missing)
        message = f"the config states {stated} layers, the tensors of {name} lack {len(missing)}: {which}"
        yield make_finding(
            "INV020",
            Subject(kind="model", name=name),
            message,
            evidence=[seen.facts.sources["/architecture/layers"]],
        )


def main_stack(layers: Sequence[LayerCount]) -> Sequence[LayerCount]:
    """The layers of the deepest stack; of two equally deep ones the decoder."""
    stacks: dict[str, list[LayerCount]] = {}
    for layer in layers:
        stacks.setdefault(layer.name.rpartition(".")[0], []).append(layer)
    return max(stacks.values(), key=lambda stack: (len(stack), "encoder" not in stack[0].name), default=[])


def experts_of(layer: LayerCount) -> Mapping[str, set[int]]:
    """Weight pattern -> experts that the layer holds, for layers with one tensor an expert."""
    found: dict[str, set[int]] = {}
    for item in layer.groups:
        pattern = item.group.pattern
        if item.place.role == "expert" and pattern.expert_slot >= 0:
            slot = pattern.expert_slot - (0 <= pattern.layer_slot < pattern.expert_slot)
            found.setdefault(pattern.text, set()).update(item.group.index_sets[slot])
    return found


def _missing_experts(seen: Seen) -> Iterable[Finding]:
    stated = seen.facts.architecture.experts
    for layer in seen.stack:
        held = experts_of(layer)
        expected = set(range(stated)) if stated else set().union(*held.values())
        lacking = {text: expected - indices for text, indices in held.items() if expected - indices}
        if lacking:
            text, missing = next(iter(lacking.items()))
            which, number = format_indices(missing), len(missing)
            message = f"{layer.name} lacks {number} of {len(expected)} experts in {text}: {which}"
            yield make_finding(
                "INV021", Subject(kind="node", name=layer.name), message, evidence=list(lacking)
            )


def _sizes(seen: Seen) -> Iterable[Finding]:
    """The embedding's rows and columns against vocabulary and hidden size."""
    architecture = seen.facts.architecture
    for item in seen.counted:
        group = item.group
        if item.place.role != "embedding" or item.place.part != "text" or len(group.shape) != 2:
            continue
        if not _TOKEN_EMBEDDINGS & set(group.pattern.segments):
            continue
        pairs = (("vocab_size", group.shape[0]), ("hidden_size", group.shape[1]))
        for fact, size in pairs:
            stated = getattr(architecture, fact)
            if stated and (size < stated if fact == "vocab_size" else size != stated):
                source = seen.facts.sources[f"/architecture/{fact}"]
                message = f"the config states {fact} {stated}, {group.example} has {list(group.shape)}"
                subject = Subject(kind="tensor", name=f"{group.example} {fact}")
                yield make_finding(
                    "INV027", subject, message, evidence=[source, f"header of {group.example}"]
                )


def _mtp(seen: Seen) -> Iterable[Finding]:
    declared = seen.facts.mtp_layers
    stored = any(item.place.part == "mtp" for item in seen.counted)
    if bool(declared) != stored:
        message = (
            f"the config declares {declared} layers of multi-token prediction, none is stored"
            if declared
            else "tensors of multi-token prediction are stored, the config declares none"
        )
        yield make_finding("INV025", Subject(kind="model", name="multi-token prediction"), message)


def _irregular(seen: Seen) -> Iterable[Finding]:
    """Layers without a weight that more than half of the layers with the same neighbours have."""
    kinds: dict[tuple[str, bool, bool], list[LayerCount]] = {}
    for layer in seen.stack:
        attends = any(item.place.role == "attention" for item in layer.groups)
        kinds.setdefault((layer.name.rpartition(".")[0], layer.has_experts, attends), []).append(layer)
    for layers in kinds.values():
        weights = {layer.index: _weights(layer) for layer in layers}
        for name in sorted(set().union(*weights.values())):
            lacking = [index for index, held in weights.items() if name not in held]
            if 0 < len(lacking) * 4 < len(layers):  # a quarter or more is a pattern, not a hole
                where, others = format_indices(lacking), len(layers) - len(lacking)
                message = f"layers {where} lack {name}, which {others} others have"
                yield make_finding("INV028", Subject(kind="tensor", name=name), message)


def _weights(layer: LayerCount) -> set[str]:
    """The layer's weights by pattern, whatever precision they are packed in."""
    names = (item.group.pattern.text for item in layer.groups if item.place.counts)
    return {name.removesuffix("_packed").replace(".qweight", ".weight") for name in names}
