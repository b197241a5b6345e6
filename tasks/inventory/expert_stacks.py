"""Routed experts kept in one tensor a layer: their number against the config's, and experts per token."""

from __future__ import annotations

from collections.abc import Iterable

from ..finding import Finding, Subject, make_finding
from .index_sets import format_indices, layers_text
from .seen import Seen

_STACKED = 3  # dimensions from which on the first one counts experts


def expert_findings(seen: Seen) -> Iterable[Finding]:
    """What the experts' tensors and the config's numbers say against each other."""
    yield from _stacks(seen)
    yield from _per_token(seen)


def _stacks(seen: Seen) -> Iterable[Finding]:
    stated = seen.facts.architecture.experts
    wrong: dict[tuple[str, int], list[int]] = {}
    for item in seen.counted if stated else ():
        group = item.group
        if item.place.role != "expert" or item.place.part != "text" or group.pattern.expert_slot >= 0:
            continue
        if len(group.shape) >= _STACKED and stated not in (group.shape[0], group.shape[-1]):
            layers = wrong.setdefault((group.pattern.text, group.shape[0]), [])
            layers += [group.layer] if group.layer is not None else []
    for (text, held), layers in wrong.items():
        where = f" in {layers_text(format_indices(layers))}" if layers else ""
        message = f"{text} holds {held} experts{where}, the config states {stated}"
        evidence = [seen.facts.sources["/architecture/experts"], f"header of {text}"]
        yield make_finding(
            "INV021", Subject(kind="tensor", name=f"{text}: {held}"), message, evidence=evidence
        )


def _per_token(seen: Seen) -> Iterable[Finding]:
    known = seen.facts.architecture
    if known.experts and known.top_k > known.experts:
        message = (
            f"the config lets a token use {known.top_k} of {known.experts} routed experts; "
            f"{known.experts} are counted as active"
        )
        evidence = [seen.facts.sources["/architecture/top_k"], seen.facts.sources["/architecture/experts"]]
        yield make_finding("INV093", Subject(kind="config", name="config.json"), message, evidence=evidence)
