"""What a text model cannot do without beside its layers: the embedding of tokens and the last norm."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..finding import Finding, Subject, make_finding
from .layer_slots import is_known_family
from .seen import Seen

# Classes that take tokens; those that take features alone have a vocabulary and no embedding.
_TAKES_TOKENS = re.compile(r"(ForCausalLM|LMHeadModel|ForMaskedLM|ForConditionalGeneration)$")
_DRAFT = re.compile(r"eagle|medusa|draft|mtp|specul|nextn", re.IGNORECASE)
# Their last norm has no weight.
_NO_NORM_WEIGHT = frozenset({"olmo"})


def outside_findings(seen: Seen) -> Iterable[Finding]:
    """Embedding and last norm, where nothing else may stand for them."""
    known = seen.facts.architecture
    if not known.layers or not seen.stack or _DRAFT.search(known.architecture or ""):
        return
    if _lacks_embedding(seen):
        message = "no embedding of tokens is stored; a loader fills it with random numbers"
        yield _missing("embedding", message)
    if is_known_family(seen.facts) and _lacks_norm(seen):
        message = "no weight of the last norm, behind the layers, is stored; a loader fills it with ones"
        yield _missing("final norm", message)


def _missing(name: str, message: str) -> Finding:
    return make_finding("INV091", Subject(kind="model", name=name), message, evidence=["headers"])


def _lacks_embedding(seen: Seen) -> bool:
    known = seen.facts.architecture
    if not known.vocab_size or not _TAKES_TOKENS.search(known.architecture or ""):
        return False
    if seen.awaits(role="embedding"):
        return False
    text = [item for item in seen.counted if item.place.part in ("text", "mtp")]
    if any(item.place.role == "embedding" and item.place.part == "text" for item in text):
        return False
    if seen.facts.tied is not False and any(item.place.role == "head" for item in text):
        return False  # one matrix, kept under the head's name
    # A matrix of that many rows under a name that is not known may be the embedding.
    return not any(
        item.place.role == "unknown" and known.vocab_size <= max(item.group.shape, default=0)
        for item in seen.counted
    )


def _lacks_norm(seen: Seen) -> bool:
    if seen.facts.text_type in _NO_NORM_WEIGHT or seen.awaits(role="norm"):
        return False
    return not any(
        item.place.role in ("norm", "unknown") and item.place.part == "text" and item.group.layer is None
        for item in seen.counted
    )
