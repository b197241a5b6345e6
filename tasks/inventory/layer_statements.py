"""What a config says of its layers one by one, where no model can be made of it."""

from __future__ import annotations

from collections.abc import Iterable

from ..finding import Finding, Subject, make_finding
from .index_sets import format_indices, layers_text
from .layer_kinds import is_known_word, listed_words
from .readable import readable
from .seen import Seen

_MOST = 4


def layer_statement_findings(seen: Seen) -> Iterable[Finding]:
    """Lists of layer types of the wrong length or with unknown words, and windows of no size."""
    facts = seen.facts
    words, key = listed_words(facts)
    stated = facts.architecture.layers
    pointer = f"{facts.pointer}/{key}"
    if words and stated and len(words) not in (stated, stated + facts.mtp_layers):
        message = f"the config lists {len(words)} {key} for {stated} layers; the list was not used"
        yield _finding(pointer, message)
        return
    unknown = list(dict.fromkeys(word for word in words if not is_known_word(word)))
    if unknown:
        where = format_indices(index for index, word in enumerate(words) if word in unknown)
        said = ", ".join(readable(word) for word in unknown[:_MOST])
        message = f"{key} calls layers {where} {said}, which no known model does; they are counted as full"
        yield _finding(pointer, message)
    sliding = sorted({layer.index for layer in seen.layers if layer.kind == "sliding"})
    if sliding and not facts.architecture.sliding_window:
        message = (
            f"{layers_text(format_indices(sliding))} {'is' if len(sliding) == 1 else 'are'} sliding and the "
            "config states no window; their cache is counted as if it grew"
        )
        yield _finding(f"{facts.pointer}/sliding_window", message)


def _finding(pointer: str, message: str) -> Finding:
    subject = Subject(kind="config", name=f"config.json#{pointer}")
    return make_finding("INV033", subject, message, evidence=[f"config.json#{pointer}"])
