"""Layers of multi-token prediction: declared against stored, and what they repeat of the main model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..finding import Finding, Subject, make_finding
from .config_facts import KEYS
from .counts import Counted
from .readable import plural
from .seen import Seen
from .tied_embeddings import compare_weights

_SUBJECT = Subject(kind="model", name="multi-token prediction")
_REPEATED = {
    "embed_tokens": "embedding", "embedding": "embedding", "word_embeddings": "embedding", "emb": "embedding",
    "shared_head": "head", "lm_head": "head", "head": "head", "output": "head",
}  # fmt: skip


def prediction_findings(seen: Seen) -> Iterable[Finding]:
    """Contradictions in both directions, and copies of embedding and head."""
    stored = [item for item in seen.counted if item.place.part == "mtp"]
    declared = {key: seen.facts.integer(key) for key in KEYS["mtp_layers"] if seen.facts.integer(key) > 0}
    said = ", ".join(f"{key} {number}" for key, number in declared.items())
    evidence = [f"config.json#{seen.facts.pointer}/{key}" for key in declared]
    layers = _layers(stored)
    partial = seen.awaits(part="mtp")
    if declared and not stored and not partial:
        message = f"the config declares {said}, and no tensor of multi-token prediction is stored"
        yield make_finding("INV025", _SUBJECT, message, evidence=evidence)
    elif stored and not declared:
        params, number = sum(item.params for item in stored), sum(item.group.count for item in stored)
        message = (
            f"{plural(number, 'tensor')} of multi-token prediction with {plural(params, 'parameter')} "
            f"{'is' if number == 1 else 'are'} stored, e.g. {stored[0].group.example}, and the config "
            "declares none"
        )
        yield make_finding("INV025", _SUBJECT, message, evidence=[stored[0].group.example])
    elif stored and layers and layers not in declared.values() and not partial:
        message = (
            f"the config declares {said}, and {plural(layers, 'layer')} of multi-token prediction "
            f"{'is' if layers == 1 else 'are'} stored"
        )
        yield make_finding("INV025", _SUBJECT, message, evidence=evidence)
    yield from _copies(seen, stored)


def _layers(stored: Sequence[Counted]) -> int:
    """How many layers; 0 where the names do not number them as layers."""
    stacks: dict[str, set[int]] = {}
    for item in stored:
        if item.group.layer is not None:
            stacks.setdefault(item.group.pattern.stack, set()).add(item.group.layer)
    return max((len(indices) for indices in stacks.values()), default=0)


def _copies(seen: Seen, stored: Sequence[Counted]) -> Iterable[Finding]:
    """Matrices of prediction layers of the embedding's or head's shape."""
    main = {
        item.place.role: item
        for item in seen.counted
        if item.place.part == "text" and item.place.role in ("embedding", "head") and item.group.count == 1
    }
    for item in stored:
        role = next((_REPEATED[word] for word in item.group.pattern.segments if word in _REPEATED), "")
        twin = main.get(role) or main.get("embedding")
        if not role or twin is None or item.group.shape != twin.group.shape or len(item.group.shape) != 2:
            continue
        name = item.group.example
        compared = compare_weights(seen, item, twin) if item.group.count == 1 else "unverified"
        bytes_said = {"identical": "the same bytes", "different": "other bytes"}.get(
            compared, "bytes not compared"
        )
        message = (
            f"{name} {list(item.group.shape)} repeats {twin.group.example}: the same shape, {bytes_said}, "
            f"{item.group.bytes:,} bytes"
        )
        yield make_finding(
            "INV047", Subject(kind="tensor", name=name), message, evidence=[f"header of {name}"]
        )
