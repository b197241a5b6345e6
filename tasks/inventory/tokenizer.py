"""The tokenizer: its files, its vocabulary against the rows that the weights have, its special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from day0.adapters.checkpoints.strict_json import JsonError, parse_strict, shorten
from day0.adapters.models.tokenizer_files import TokenizerFileError, Vocabulary, read_vocabulary

from ..finding import Finding, Severity, Subject, make_finding
from .chat_templates import absent_finding, read_templates
from .record_structure import Tokenizer
from .roles import LOW_PRECISION
from .seen import Part, Seen
from .special_tokens import (
    TokenTexts,
    no_ids,
    special_tokens,
    start_out_of_range,
    stated_ids,
    token_findings,
    unknown_texts,
)

# Files that hold a vocabulary, the one that loaders prefer first.
_VOCABULARIES = ("tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model",
                 "sentencepiece.bpe.model", "tiktoken.model", "vocab.json", "vocab.txt")  # fmt: skip
_FILES = re.compile(
    r"tokenizer[^/]*\.(json|model)|tekken\.json|spiece\.model|sentencepiece[^/]*\.model|[^/]*tiktoken[^/]*"
    r"|vocab\.(json|txt)|merges\.txt|added_tokens\.json|special_tokens_map\.json|tokenization_[^/]*\.py"
)  # fmt: skip
_TOKEN_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "token_embd", "tok_embeddings", "embed_in",
                     "shared", "embeddings", "embedding", "embed", "emb")  # fmt: skip
# Vocabularies of which not every id has a text here.
_NO_TEXTS = ("sentencepiece", "tiktoken", "tekken")
_UNPACKED = LOW_PRECISION - {"uint8", "int32", "uint32", "int4", "fp4_e2m1"}


def read_tokenizer(seen: Seen) -> Part:
    """The part of the inventory that is about the tokenizer; nothing for a bare config."""
    source = seen.release.source
    if source is None:
        return Part()
    held = seen.texts.held
    listed = [file.path for file in source.files() if _FILES.fullmatch(file.path)]
    findings: list[Finding] = []
    parsed = {
        name: _parse(held[name], name, findings)
        for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                     "generation_config.json", "chat_template.json")
        if name in held
    }  # fmt: skip
    config = parsed.get("tokenizer_config.json", {})
    vocabularies, broken = _vocabularies(held, listed)
    findings += broken
    texts = _texts(vocabularies, parsed)
    templates, refused = read_templates(held, config, parsed.get("chat_template.json", {}))
    findings += refused
    generation = parsed.get("generation_config.json")
    tokenizer = _sizes(seen, next(iter(vocabularies.values()), None), texts).model_copy(
        update={
            "tokenizer_class": _word(config.get("tokenizer_class")),
            "files": tuple(listed),
            "special_tokens": tuple(special_tokens(texts)),
            "stated_ids": tuple(stated_ids(seen.facts, generation, texts)),
            "chat_templates": tuple(templates),
        }
    )
    rows = tokenizer.embedding_rows or tokenizer.config_vocab_size
    findings += token_findings(tokenizer.stated_ids, texts, rows, generation=generation is not None)
    findings += start_out_of_range(seen.facts, generation, rows)
    findings += no_ids(seen.facts, generation)
    if any(not kind.startswith(_NO_TEXTS) for kind in (item.kind for item in vocabularies.values())):
        findings += unknown_texts(texts)
    findings += _remarks(seen, tokenizer, bool(vocabularies or broken))
    return Part({"tokenizer": tokenizer}, findings, _sources(seen, vocabularies))


def _parse(data: bytes, name: str, findings: list[Finding]) -> Mapping[str, Any]:
    try:
        parsed = parse_strict(data)
        if isinstance(parsed, dict):
            return parsed
        problem = f"holds a {type(parsed).__name__} instead of an object"
    except JsonError as error:
        problem = f"is {error}" if str(error).startswith("not ") else f"cannot be used: {error}"
    if data.startswith(b"version https://git-lfs"):
        problem = "is a git-lfs pointer, not the file"
    # A key twice is read by every loader, and nested text is none of theirs: only broken JSON stops them.
    stops = problem.startswith("is ")
    findings.append(_unusable(name, problem, None if stops else "warning"))
    return {}


def _vocabularies(
    held: Mapping[str, bytes], listed: Sequence[str]
) -> tuple[dict[str, Vocabulary], Sequence[Finding]]:
    """File -> vocabulary, the preferred file first; the others are only read where that one is unusable."""
    names = [name for name in _VOCABULARIES if name in held]
    names += [name for name in listed if name.endswith(".tiktoken") and name in held]
    found: dict[str, Vocabulary] = {}
    findings = []
    for name in names:
        if found and not held[name].startswith(b"version https://git-lfs"):
            continue
        try:
            found[name] = read_vocabulary(name, held[name])
        except TokenizerFileError as error:
            findings.append(
                _unusable(name, f"is {error}" if str(error).startswith(("a ", "not ")) else f"has {error}")
            )
    return found, findings


def _texts(vocabularies: Mapping[str, Vocabulary], parsed: Mapping[str, Mapping[str, Any]]) -> TokenTexts:
    texts = TokenTexts()
    for name, vocabulary in vocabularies.items():
        texts.ids.update(vocabulary.tokens)
        for number, text in vocabulary.added.items():
            texts.add(number, text, name, special=number in vocabulary.special)
    if "added_tokens.json" in parsed:
        texts.read_added_tokens(parsed["added_tokens.json"], "added_tokens.json")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if name in parsed:
            texts.read_tokenizer_config(parsed[name], name)
    return texts


def _sizes(seen: Seen, vocabulary: Vocabulary | None, texts: TokenTexts) -> Tokenizer:
    """Entries, ids and the rows that weights and config have for them."""
    embedding, head = _rows(seen)
    sizes: dict[str, Any] = {
        "embedding_rows": embedding,
        "head_rows": head,
        "config_vocab_size": seen.facts.architecture.vocab_size,
    }
    if vocabulary is not None:
        # Texts of all ids are known in JSON vocabularies only; elsewhere ids up to the highest are taken.
        by_text = not vocabulary.kind.startswith(_NO_TEXTS)
        taken = set(vocabulary.tokens.values()) if by_text else range(vocabulary.highest + 1)
        beside = {number for number in texts.added if number not in taken}
        sizes |= {
            "kind": vocabulary.kind,
            "base_tokens": vocabulary.base,
            "added_tokens": len(beside),
            "tokens": vocabulary.base + len(beside),
            "ids": max(vocabulary.highest, max(texts.added, default=-1)) + 1,
        }
    return Tokenizer(**sizes)


def _rows(seen: Seen) -> tuple[int, int]:
    """Rows of the text model's token embedding and head; 0 where none is stored as rows."""
    embeddings: dict[int, int] = {}
    heads = [0]
    for item in seen.counted:
        group, place = item.group, item.place
        packed = group.dtype in LOW_PRECISION and group.dtype not in _UNPACKED
        if place.part != "text" or len(group.shape) != 2 or packed or item.packing:
            continue
        if place.role == "head" and group.layer is None:
            heads.append(group.shape[0])
        elif place.role == "embedding" and group.layer is None:
            segments = group.pattern.segments
            name = segments[-2] if segments[-1] == "weight" and len(segments) > 1 else segments[-1]
            if name in _TOKEN_EMBEDDINGS:
                rank = _TOKEN_EMBEDDINGS.index(name)
                embeddings[rank] = max(embeddings.get(rank, 0), group.shape[0])
    return (embeddings[min(embeddings)] if embeddings else 0), max(heads)


def _beyond_rows(tokenizer: Tokenizer) -> Iterable[Finding]:
    """Ids for which embedding, head or config have no row."""
    rows, stated = tokenizer.embedding_rows or tokenizer.config_vocab_size, tokenizer.config_vocab_size
    where = "embedding" if tokenizer.embedding_rows else "config's vocabulary"
    if rows and tokenizer.ids > rows:
        message = (
            f"the tokenizer gives out ids up to {tokenizer.ids - 1} ({tokenizer.tokens} tokens), the {where} "
            f"has {rows} rows: {tokenizer.ids - rows} ids have none"
        )
        evidence = [*tokenizer.files[:3], "config.json#/vocab_size"]
        yield make_finding("INV061", Subject(kind="model", name="tokenizer"), message, evidence=evidence)
    elif tokenizer.head_rows and tokenizer.ids > tokenizer.head_rows:
        # Input-only tokens, as Llama 3.2 Vision has one, are read and never predicted.
        message = f"the tokenizer has {tokenizer.ids} ids, the head only {tokenizer.head_rows} rows"
        yield make_finding("INV061", Subject(kind="model", name="head"), message, severity="info")
    elif 0 < stated < tokenizer.ids:
        message = (
            f"the tokenizer gives out ids up to {tokenizer.ids - 1}, the config states a vocabulary of "
            f"{stated}: {tokenizer.ids - stated} ids are beyond it, though the embedding has {rows} rows"
        )
        subject = Subject(kind="config", name="config.json#/vocab_size")
        yield make_finding("INV061", subject, message, severity="warning")


def _remarks(seen: Seen, tokenizer: Tokenizer, has_vocabulary: bool) -> Sequence[Finding]:
    findings = list(_beyond_rows(tokenizer))
    if not has_vocabulary and tokenizer.embedding_rows and seen.release.checkpoint.format != "gguf":
        carried = [path for path in tokenizer.files if path not in seen.texts.held]
        if not carried:
            message = (
                f"the release embeds {tokenizer.embedding_rows} tokens and has no tokenizer.json, "
                "SentencePiece, tiktoken or vocabulary file"
            )
            # Weights and config alone are a copy for a machine; a published release is for people.
            published = bool(tokenizer.files) or "README.md" in seen.texts.held
            subject = Subject(kind="model", name="tokenizer")
            severity: Severity | None = None if published else "info"
            findings.append(make_finding("INV060", subject, message, severity=severity))
    elif not tokenizer.chat_templates and has_vocabulary:
        absent = absent_finding(_names(seen))
        findings += [absent] if absent else []
    return findings


def _names(seen: Seen) -> Sequence[str]:
    stated = seen.facts.config.get("_name_or_path")
    return (
        seen.release.model.rstrip("/").rpartition("/")[2],
        *((stated,) if isinstance(stated, str) else ()),
    )


def _word(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _unusable(name: str, problem: str, severity: Any = None) -> Finding:
    message = f"{shorten(name)[1:-1]} {problem}"
    return make_finding(
        "INV066", Subject(kind="file", name=name), message, evidence=[name], severity=severity
    )


def _sources(seen: Seen, vocabularies: Mapping[str, Vocabulary]) -> Mapping[str, str]:
    name = next(iter(vocabularies), "")
    counted = f"{name}#" if name else "computed:no file of a vocabulary"
    return {
        "/tokenizer": "computed:the tokenizer's files",
        "/tokenizer/base_tokens": counted,
        "/tokenizer/added_tokens": "computed:tokenizer.json, tokenizer_config.json, added_tokens.json",
        "/tokenizer/ids": "computed:highest id + 1",
        "/tokenizer/embedding_rows": "computed:headers",
        "/tokenizer/head_rows": "computed:headers",
        "/tokenizer/config_vocab_size": seen.facts.sources.get(
            "/architecture/vocab_size", "computed:not stated"
        ),
    }
