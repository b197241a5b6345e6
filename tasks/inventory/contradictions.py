"""What config and tensors say against each other; shown as findings, resolved nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from ..finding import Finding, Subject, make_finding
from .arithmetic import MODEL_TYPES, arithmetic_findings
from .counts import Counted, LayerCount, main_stack
from .expert_stacks import expert_findings
from .folding import fold_groups
from .index_sets import format_indices
from .layer_holes import hole_findings
from .outside_holes import outside_findings
from .patterns import Pattern
from .prediction_layers import prediction_findings
from .readable import plural, readable
from .roles import LOW_PRECISION, is_output_matrix
from .seen import Seen
from .stated_layers import stated_layer_findings
from .tied_embeddings import TOKEN_EMBEDDINGS

# Matrices of one row a token; other heads (classifiers) have one a label.
_VOCABULARY = TOKEN_EMBEDDINGS | {"lm_head", "embed_out"}
# Width of embedding and head where it is not that of the layers: ELECTRA and ALBERT, OPT.
_EMBEDDING_WIDTHS = ("embedding_size", "word_embed_proj_dim")
_CONFIG = Subject(kind="config", name="config.json")
_OUTSIDE = ("embedding", "head", "norm", "aux", "buffer")  # what may stand outside the layers


def contradictions(seen: Seen) -> Sequence[Finding]:
    """All findings about a release that has weights."""
    checks = (
        _dtype,
        _missing_layers,
        stated_layer_findings,
        _missing_experts,
        _experts_gone,
        _sizes,
        arithmetic_findings,
        prediction_findings,
        hole_findings,
        outside_findings,
        expert_findings,
    )
    return tuple(finding for check in checks for finding in check(seen))


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


def missing_layers(seen: Seen) -> Set[int]:
    """Layers that the config states and that are neither stored nor in a file that is not here."""
    stack = main_stack(seen.stack)
    if not stack or seen.awaited.untold:
        return set(range(seen.facts.architecture.layers)) if _has_no_layer(seen) else set()
    awaited = seen.awaited.stacks.get(stack[0].name.rpartition(".")[0], set())
    return set(range(seen.facts.architecture.layers)) - {layer.index for layer in stack} - awaited


def _missing_layers(seen: Seen) -> Iterable[Finding]:
    stated = seen.facts.architecture.layers
    stack, missing = main_stack(seen.stack), missing_layers(seen)
    if not stack:
        yield from _no_layer(seen)
        return
    name = stack[0].name.rpartition(".")[0]
    if missing:
        which = format_indices(missing)
        message = f"the config states {stated} layers, the tensors of {name} lack {len(missing)}: {which}"
        yield make_finding(
            "INV020",
            Subject(kind="model", name=name),
            message,
            evidence=[seen.facts.sources["/architecture/layers"]],
            remedy=_whole_file(seen),
        )


def _whole_file(seen: Seen) -> str | None:
    """What to do where no other file could hold what is missing; None: as the catalogue says."""
    shards = seen.release.checkpoint.shards
    if len(shards) != 1:
        return None
    return (
        f"Fetch {readable(shards[0])} again; if it is the same, tell the publisher that it was cut on export."
    )


def _has_no_layer(seen: Seen) -> bool:
    outside = all(item.place.role in _OUTSIDE and item.group.pattern.layer_slot < 0 for item in seen.counted)
    return bool(seen.counted and seen.facts.architecture.layers and outside) and not seen.awaited.any


def _no_layer(seen: Seen) -> Iterable[Finding]:
    """Nothing but what stands outside the layers, where the config states some."""
    stated = seen.facts.architecture.layers
    if _has_no_layer(seen):
        message = f"the config states {stated} layers, and no tensor of a layer is stored"
        source = seen.facts.sources["/architecture/layers"]
        subject = Subject(kind="model", name="layers")
        yield make_finding("INV020", subject, message, evidence=[source], remedy=_whole_file(seen))


def experts_of(layer: LayerCount) -> Mapping[str, set[int]]:
    """Weight pattern -> experts that the layer holds, for layers with one tensor an expert."""
    found: dict[str, set[int]] = {}
    for item in layer.groups:
        pattern = item.group.pattern
        if item.place.role == "expert" and pattern.expert_slot >= 0:
            slot = pattern.expert_slot - (0 <= pattern.layer_slot < pattern.expert_slot)
            found.setdefault(pattern.text, set()).update(item.group.others.index_sets[slot])
    return found


def _missing_experts(seen: Seen) -> Iterable[Finding]:
    """One finding for all weights that lack the same experts in the same layers."""
    lacking: dict[str, dict[int, frozenset[int]]] = {}
    patterns: dict[str, Pattern] = {}
    stated = seen.facts.architecture.experts
    for layer in seen.stack:
        held = experts_of(layer)
        expected = set(range(stated)) if stated else set().union(*held.values())
        for text, indices in held.items():
            gone = expected - indices
            if gone and not seen.awaited.untold:
                gone -= seen.awaited.experts(text, layer.index)
                if gone:
                    lacking.setdefault(text, {})[layer.index] = frozenset(gone)
        patterns |= {item.group.pattern.text: item.group.pattern for item in layer.groups}
    alike: dict[frozenset[tuple[int, frozenset[int]]], list[str]] = {}
    for text, layers in lacking.items():
        alike.setdefault(frozenset(layers.items()), []).append(text)
    for texts in alike.values():
        yield _experts_finding(texts, lacking[texts[0]], patterns[texts[0]])


def _experts_finding(texts: Sequence[str], layers: Mapping[int, frozenset[int]], pattern: Pattern) -> Finding:
    folds = fold_groups(
        (Pattern(pattern.text, 0, 1), layer, [(str(index),) for index in sorted(missing)], texts[0])
        for layer, missing in layers.items()
    )
    number = sum(fold.tensors for fold in folds)
    more = f" and {len(texts) - 1} more weights" if len(texts) > 1 else ""
    sets = "; ".join(fold.where for fold in folds)
    lacking = f"{plural(number, 'expert')} of {plural(len(layers), 'layer')}"
    message = f"{lacking} {'lacks' if number == 1 else 'lack'} {texts[0]}{more}: {sets}"
    return make_finding("INV021", Subject(kind="tensor", name=texts[0]), message, evidence=list(texts))


def _experts_gone(seen: Seen) -> Iterable[Finding]:
    """Layers that route and have nothing to route to."""
    gone = [
        layer
        for layer in seen.stack
        if not layer.has_experts and any(item.place.role == "router" for item in layer.groups)
    ]
    if gone and seen.facts.architecture.experts and not seen.awaits(role="expert"):
        where = format_indices(layer.index for layer in gone)
        subject = f"layer {where} has" if len(gone) == 1 else f"layers {where} have"
        message = f"{subject} a router and none of the {seen.facts.architecture.experts} routed experts"
        yield make_finding("INV021", Subject(kind="model", name="layers without experts"), message)


def _sizes(seen: Seen) -> Iterable[Finding]:
    """The rows and columns of embedding and head against vocabulary and hidden size."""
    architecture = seen.facts.architecture
    for item in seen.counted:
        group = item.group
        if item.place.role not in ("embedding", "head") or item.place.part != "text" or item.packing:
            continue
        if len(group.shape) != 2 or not group.elements or not _VOCABULARY & set(group.pattern.segments):
            continue
        if item.place.role == "head" and not is_output_matrix(group, item.place):
            continue
        pairs = (("vocab_size", group.shape[0]), ("hidden_size", group.shape[1]))
        for fact, size in pairs:
            stated = getattr(architecture, fact)
            narrow = seen.facts.integer(*_EMBEDDING_WIDTHS) if fact == "hidden_size" else 0
            # Elsewhere rows are padded; these classes have exactly as many as the config states.
            padded = fact == "vocab_size" and size > stated and seen.facts.text_type not in MODEL_TYPES
            if stated and size not in (narrow, stated) and not padded:
                source = seen.facts.sources[f"/architecture/{fact}"]
                message = f"the config states {fact} {stated}, {group.example} has {list(group.shape)}"
                subject = Subject(kind="tensor", name=f"{group.example} {fact}")
                yield make_finding(
                    "INV027", subject, message, evidence=[source, f"header of {group.example}"]
                )
