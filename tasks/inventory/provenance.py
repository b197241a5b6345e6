"""Licence, gating and lineage, as the card, the files and the source state them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from day0.adapters.sources.model_card import front_matter, texts_of

from ..finding import Finding, Subject, make_finding
from .record_trust import Provenance
from .seen import Part, Seen

_LICENCE_FILE = re.compile(r"(?i)([^/]*[-_.])?(licen[cs]e|copying|notice|use_policy)([-_.][^/]*)?")
_LONGEST = 300


def read_provenance(seen: Seen) -> Part:
    """The part of the inventory that is about licence, gating and lineage."""
    source = seen.release.source
    card = front_matter(seen.texts.held.get("README.md", b""))
    paths = [file.path for file in source.files()] if source else []
    files = tuple(path for path in paths if _LICENCE_FILE.fullmatch(path) and "/" not in path)
    named = seen.facts.config.get("_name_or_path")
    gated = getattr(source, "gated", None)
    provenance = Provenance(
        licence=_text(", ".join(texts_of(card, "license"))),
        licence_name=_text(", ".join(texts_of(card, "license_name"))),
        licence_link=_text(", ".join(texts_of(card, "license_link"))),
        library=_text(", ".join(texts_of(card, "library_name"))),
        pipeline=_text(", ".join(texts_of(card, "pipeline_tag"))),
        base_models=tuple(map(_text, texts_of(card, "base_model"))),
        datasets=tuple(map(_text, texts_of(card, "datasets"))),
        languages=tuple(map(_text, texts_of(card, "language"))),
        licence_files=files,
        gated=gated if isinstance(gated, bool) else None,
        name_or_path=_text(named) if isinstance(named, str) else "",
    )
    findings = []
    if seen.counted and paths and "README.md" in paths and not provenance.licence and not files:
        findings.append(_unlicensed())
    return Part({"provenance": provenance}, findings, _sources())


def _unlicensed() -> Finding:
    message = "the model card states no licence and no file of the release is one"
    return make_finding("INV078", Subject(kind="model", name="licence"), message, evidence=["README.md"])


def _text(text: str) -> str:
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _sources() -> Mapping[str, str]:
    return {
        "/provenance": "README.md#front matter",
        "/provenance/licence_files": "computed:the source's listing",
        "/provenance/gated": "computed:the source's answer",
        "/provenance/name_or_path": "config.json#/_name_or_path",
    }
