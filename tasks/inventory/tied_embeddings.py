"""Embedding and head: one matrix or two, by the config, by the tensors, and by their bytes where at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable

from day0.adapters.base.errors import Day0Error

from ..finding import Finding, Subject, make_finding
from .counts import Counted
from .duplicates import MAX_COMPARED, is_local
from .record import TiedEmbeddings
from .roles import is_output_matrix
from .seen import Part, Seen

# Classes that give tokens, and thus need a head; a bare model and a classifier have none by design.
_GIVES_TOKENS = re.compile(
    r"(LMHeadModel|CausalLM|MaskedLM|ForConditionalGeneration|ForPreTraining|ForSpeechSeq2Seq|ChatModel"
    r"|DoubleHeadsModel)$"
)
_EVIDENCE = "config.json#/tie_word_embeddings"
# Embeddings of tokens, as against those of positions or types.
TOKEN_EMBEDDINGS = frozenset(
    {"embed_tokens", "wte", "word_embeddings", "token_embd", "tok_embeddings", "embed_in"}
)


def stored_tied(counted: Iterable[Counted]) -> bool | None:
    """Whether the tensors show a tied head: an embedding and no head; None where there is no embedding.

    A head without elements, as some writers leave it, is none.
    """
    held = [item for item in counted if item.place.part == "text" and item.group.elements]
    if not any(item.place.role == "embedding" for item in held):
        return None
    return not any(is_output_matrix(item.group, item.place) for item in held)


def tied_by_tensors(seen: Seen) -> bool | None:
    """The same of a release; None too where its class has no head, or one may be in an absent file."""
    found = stored_tied(seen.counted)
    name = seen.facts.architecture.architecture
    if found and name and not _GIVES_TOKENS.search(name):
        return None
    return None if found and seen.awaits(part="text", role="head") else found


def read_tied(seen: Seen) -> Part:
    """What config, tensors and bytes say, and where they contradict each other."""
    config, tensors = seen.facts.tied, tied_by_tensors(seen)
    head, embedding = _weight(seen, "head"), _weight(seen, "embedding")
    compared = compare_weights(seen, head, embedding) if head and embedding else ""
    findings = [*_empty(seen), *_contradictions(config, tensors, head, embedding, compared)]
    record = TiedEmbeddings(config=config, tensors=tensors, compared=compared)
    return Part({"tied_embeddings": record}, findings, {"/tied_embeddings/compared": "computed:tensor bytes"})


def compare_weights(seen: Seen, first: Counted, second: Counted) -> str:
    """`identical`, `different`, or `unverified` where the bytes are far, large, or a hole in a file."""
    if (first.group.dtype, first.group.shape) != (second.group.dtype, second.group.shape):
        return "different"
    if not is_local(seen.release.source) or first.group.bytes > MAX_COMPARED:
        return "unverified"
    try:
        left, right = (seen.release.checkpoint.read(item.group.example) for item in (first, second))
    except Day0Error:  # a cut file; it has a finding of its own
        return "unverified"
    if not left.strip(b"\0"):
        return "unverified" if not right.strip(b"\0") else "different"
    return "identical" if left == right else "different"


def _weight(seen: Seen, role: str) -> Counted | None:
    """The matrix of that role, if there is exactly one."""
    found = [
        item
        for item in seen.counted
        if item.place.role == role and item.place.part == "text" and item.group.elements
        and item.group.count == 1 and len(item.group.shape) == 2
        and (
            is_output_matrix(item.group, item.place)
            if role == "head"
            else TOKEN_EMBEDDINGS & set(item.group.pattern.segments)
        )
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _empty(seen: Seen) -> Iterable[Finding]:
    for item in seen.counted:
        if item.place.role == "head" and item.place.part == "text" and not item.group.elements:
            name = item.group.example
            message = f"{name} is stored with the shape {list(item.group.shape)}, which has no elements"
            yield make_finding("INV048", Subject(kind="tensor", name=name), message)


def _contradictions(
    config: bool | None, tensors: bool | None, head: Counted | None, embedding: Counted | None, compared: str
) -> Iterable[Finding]:
    if config is False and tensors is True:
        message = "tie_word_embeddings is false, yet no head is stored"
        yield make_finding(
            "INV019", Subject(kind="config", name="config.json"), message, evidence=[_EVIDENCE]
        )
    if tensors is not False or head is None:
        return
    name = head.group.example
    subject = Subject(kind="tensor", name=name)
    stored = f"{name} {list(head.group.shape)}"
    if compared == "identical" and embedding is not None:
        message = f"{stored} has the same {head.group.bytes:,} bytes as {embedding.group.example}"
        yield make_finding("INV049", subject, message, evidence=[f"bytes of {name}"])
    elif config is True:
        other = embedding.group.example if embedding is not None else "the embedding"
        said = {
            "different": f"differs from {other}",
            "unverified": f"was not compared with {other}",
            "": f"cannot be compared with {other}",
        }[compared]
        message = f"tie_word_embeddings is true, yet {stored} is stored and {said}"
        severity = "error" if compared == "different" else "warning"
        yield make_finding("INV018", subject, message, evidence=[_EVIDENCE], severity=severity)  # type: ignore[arg-type]  # one of the two words
