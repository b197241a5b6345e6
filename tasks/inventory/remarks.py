"""What is unusual about a release or not known of it, as findings."""

from __future__ import annotations

from collections.abc import Sequence

from ..finding import Finding, Subject, make_finding
from .contradictions import contradictions, experts_of
from .counts import Counted
from .layer_statements import layer_statement_findings
from .readable import plural, readable
from .seen import Seen

_MODEL = Subject(kind="model", name="model")


def remarks(seen: Seen) -> Sequence[Finding]:
    """Findings about what is unusual or not known, beside the contradictions."""
    findings: list[Finding] = []
    if seen.counted:
        findings += contradictions(seen)
    findings += _silent_config(seen)
    findings += layer_statement_findings(seen)
    findings += _no_tensors(seen)
    findings += _nothing_implied(seen)
    findings += [
        make_finding(
            "INV027",
            Subject(kind="config", name=said),
            f"the config states {said}: no model has that",
            severity="error" if seen.counted else None,  # what is stored proves it wrong
        )
        for said in seen.facts.absurd
    ]
    unknown = unknown_patterns(seen.counted)
    if unknown:
        number = sum(item.group.count for item in seen.counted if item.place.role == "unknown")
        told = f"{plural(number, 'tensor')} in {plural(len(unknown), 'pattern')}"
        message = f"{told} {'has' if number == 1 else 'have'} no known role, e.g. {unknown[0]}"
        findings.append(make_finding("INV015", _MODEL, message, evidence=unknown[:20]))
    unstated = [
        layer.name for layer, state in zip(seen.layers, seen.states, strict=True) if not state.formula
    ]
    if unstated:
        which = f"{len(unstated)} of {plural(len(seen.layers), 'layer')}"
        message = f"state of {which} is not computable, the first is {unstated[0]}"
        findings.append(make_finding("INV024", _MODEL, message, evidence=unstated[:10]))
    if routed_experts(seen) and not seen.facts.architecture.top_k:
        message = f"the config does not say how many of {routed_experts(seen)} experts a token uses"
        findings.append(make_finding("INV026", _MODEL, message))
    return findings


def _silent_config(seen: Seen) -> Sequence[Finding]:
    """A config that is there and of which no model can be made."""
    known = seen.facts.architecture
    stated = known.model_type or known.architecture or known.hidden_size or known.layers
    # Of a release that may not be read the config is no more known than the rest.
    withheld = any(item.code in ("listing_only", "no_config") for item in seen.release.checkpoint.anomalies)
    if stated or withheld:
        return ()
    keys = len(seen.release.config)
    held = f"has {keys} keys, none of which describes a model" if keys else "is empty"
    message = f"the config {held}: no model type, no architecture, no hidden size, no layers"
    return [make_finding("INV095", Subject(kind="config", name="config.json"), message)]


def holds_nothing(seen: Seen) -> bool:
    """Whether tensor files could be read and none of them names a tensor."""
    checkpoint = seen.release.checkpoint
    read = checkpoint.format == "safetensors" and bool(checkpoint.layout)
    return read and not seen.counted and not seen.awaited.any


def _no_tensors(seen: Seen) -> Sequence[Finding]:
    if not holds_nothing(seen):
        return ()
    shards = seen.release.checkpoint.shards
    files = plural(len(shards), "tensor file")
    message = f"{files} can be read, e.g. {readable(shards[0])}, and the headers name no tensor at all"
    return [make_finding("INV092", _MODEL, message, evidence=list(shards[:10]))]


def _nothing_implied(seen: Seen) -> Sequence[Finding]:
    """A config alone of which no model can be built: sizes and costs are not known, whatever else is."""
    if seen.release.checkpoint.format != "none" or seen.basis != "none" or not seen.release.config:
        return ()
    named = seen.facts.architecture.model_type or seen.facts.architecture.architecture
    if not named or any(item.code == "listing_only" for item in seen.release.checkpoint.anomalies):
        return ()
    message = (
        f"no weights are there and no model could be built of {readable(named)}: its parameters are not known"
    )
    return [make_finding("INV105", _MODEL, message, evidence=[seen.answer.reason or "config.json"])]


def unknown_patterns(counted: Sequence[Counted]) -> list[str]:
    """Patterns of tensors that no role was found for."""
    return list(dict.fromkeys(item.group.pattern.text for item in counted if item.place.role == "unknown"))


def routed_experts(seen: Seen) -> int:
    """Routed experts a layer: as the tensors show, one by one or stacked, else as the config says."""
    held = [len(indices) for layer in seen.stack for indices in experts_of(layer).values()]
    if held:
        return max(held)
    stacked = [
        item.group.shape[0]
        for item in seen.known
        if item.place.role == "expert" and item.group.pattern.expert_slot < 0 and len(item.group.shape) > 2
    ]
    stated = seen.facts.architecture.experts
    # All stacks of all layers have one first dimension: that is no accident of a fused or transposed shape.
    return stacked[0] if stacked and len(set(stacked)) == 1 and stated else stated or max(stacked, default=0)
