"""Which release of transformers knows the model type, and what it means where none does."""

from __future__ import annotations

from day0.adapters.checkpoints.strict_json import shorten
from day0.adapters.models.transformers_types import type_support

from ..finding import Finding, Subject, make_finding
from .config_facts import ConfigFacts
from .record_structure import TransformersSupport
from .seen import Part, Seen


def read_support(seen: Seen) -> Part:
    """The part of the inventory that is about transformers, from a shipped table; it is not imported."""
    architecture = seen.facts.architecture
    word = architecture.model_type
    known = type_support(word)
    native = is_native(seen.facts)
    support = TransformersSupport(
        model_type=word,
        known_since=known.since,
        newest_checked=known.newest,
        native=native,
        needs_custom_code=bool(architecture.custom_code) and not native,
    )
    findings = [] if native or not word else [_unknown(support, known.dropped)]
    return Part(
        {"transformers": support},
        findings,
        {"/transformers": "computed:model types of transformers 4.0 to " + known.newest},
    )


def is_native(facts: ConfigFacts) -> bool:
    """Whether the newest transformers that was checked builds the model without code of the repository."""
    known = type_support(facts.architecture.model_type)
    return bool(known.since and not known.dropped)


def _unknown(support: TransformersSupport, dropped: str) -> Finding:
    word = shorten(support.model_type)
    if dropped:
        known = f"from {support.known_since} on and dropped it in {dropped}"
        message = f"transformers knew the model type {word} {known}"
    else:
        message = f"no transformers from 4.0 to {support.newest_checked} knows the model type {word}"
    own = support.needs_custom_code
    message += (
        "; only the repository's own code can build it"
        if own
        else ", and the repository brings no code: stages that need the model's structure are blocked"
    )
    subject = Subject(kind="config", name="config.json#/model_type")
    return make_finding(
        "INV075", subject, message, evidence=["config.json#/model_type"], severity="info" if own else None
    )
