"""Chat templates of a release: found wherever they lie, parsed by Jinja's own parser, never rendered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from day0.adapters.checkpoints.strict_json import shorten

from ..finding import Finding, Subject, make_finding
from .record_structure import ChatTemplate

MAX_CHARACTERS = 1_000_000  # the longest published ones have some 30,000
MAX_TEMPLATES = 50
_LONGEST = 200  # characters of a stranger's name
_ADDITIONAL = re.compile(r"additional_chat_templates/([^/]+)\.jinja")
_CHAT_NAME = re.compile(r"(?i)(?:^|[-_/ .])(instruct|chat|it|sft|dpo)(?:$|[-_/ .@])")
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("tools", re.compile(r"^tools$|^tool_calls?$")),
    ("thinking", re.compile(r"think|reasoning")),
    ("system", re.compile(r"^system$|^developer$")),
    ("images", re.compile(r"^image(s|_url)?$")),
    ("video", re.compile(r"^videos?(_url)?$")),
    ("audio", re.compile(r"^(input_)?audios?(_url)?$")),
    ("documents", re.compile(r"^documents$")),
)


def read_templates(
    held: Mapping[str, bytes], tokenizer_config: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[Sequence[ChatTemplate], Sequence[Finding]]:
    """All chat templates and what is wrong with them.

    Args:
        held: path -> bytes of the release's small files.
        tokenizer_config: as parsed.
        others: `chat_template.json` as parsed; empty for none.
    """
    found = islice(_found(held, tokenizer_config, others), MAX_TEMPLATES)
    templates = [_read(name[:_LONGEST], source[:_LONGEST], text) for name, source, text in found]
    findings = [_refused(template) for template in templates if template.error]
    findings += _no_text("tokenizer_config.json", tokenizer_config)
    findings += _no_text("chat_template.json", others)
    defaults = {template.sha256: template.source for template in templates if template.name == "default"}
    if len(defaults) > 1:
        sources = tuple(defaults.values())
        message = f"{len(defaults)} default chat templates differ: {', '.join(sources)}"
        findings.append(make_finding("INV065", _file("chat template"), message, evidence=sources))
    return templates, findings


def absent_finding(names: Iterable[str]) -> Finding | None:
    """That a model which is called a chat model has no template; `names` are its names and classes."""
    name = next((name for name in names if _CHAT_NAME.search(name)), None)
    if name is None:
        return None
    message = f"{shorten(name)} is called a chat or instruction model; no chat template is in the release"
    return make_finding("INV064", Subject(kind="model", name="chat template"), message)


def _found(
    held: Mapping[str, bytes], config: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterable[tuple[str, str, str]]:
    """Name, place and text of each."""
    stated = config.get("chat_template")
    if isinstance(stated, str):
        yield "default", "tokenizer_config.json#/chat_template", stated
    elif isinstance(stated, Mapping):
        for name, text in stated.items():
            if isinstance(text, str):
                yield str(name), f"tokenizer_config.json#/chat_template/{name}", text
    elif isinstance(stated, list):
        for place, item in enumerate(stated):
            if isinstance(item, Mapping) and isinstance(item.get("template"), str):
                yield (
                    str(item.get("name", place)),
                    f"tokenizer_config.json#/chat_template/{place}",
                    item["template"],
                )
    for path in sorted(held):
        extra = _ADDITIONAL.fullmatch(path)
        if path == "chat_template.jinja" or extra:
            yield extra[1] if extra else "default", path, held[path].decode("utf-8", "replace")
    text = others.get("chat_template")
    if isinstance(text, str):
        yield "default", "chat_template.json#/chat_template", text


def _no_text(file: str, held: Mapping[str, Any]) -> Iterable[Finding]:
    """What stands in a template's place and is no text; null means none."""
    stated = held.get("chat_template")
    if isinstance(stated, Mapping):
        texts = list(stated.values())
    elif isinstance(stated, list):
        texts = [item.get("template") if isinstance(item, Mapping) else [item] for item in stated]
    else:
        texts = [] if stated is None else [stated]
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        message = f"chat_template of {file} holds a {type(wrong[0]).__name__} where a template's text belongs"
        yield make_finding("INV065", _file(f"{file}#/chat_template"), message, evidence=[file])


def _read(name: str, source: str, text: str) -> ChatTemplate:
    sha256 = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    mentions, error = _parse(text)
    return ChatTemplate(
        name=name, source=source, sha256=sha256, characters=len(text), mentions=mentions, error=error
    )


def _parse(text: str) -> tuple[Sequence[str], str]:
    if text.startswith("version https://git-lfs"):
        return (), "a git-lfs pointer, not the template"
    if len(text) > MAX_CHARACTERS:
        return (), f"has {len(text)} characters, more than {MAX_CHARACTERS}"
    from .template_words import words_of  # the template engine is not needed where there is no template

    words, error = words_of(text)
    if error:
        return (), error
    return tuple(word for word, form in _WORDS if any(form.search(found) for found in words)), ""


def _refused(template: ChatTemplate) -> Finding:
    message = (
        f"chat template {shorten(template.name)} in {template.source} cannot be parsed: {template.error}"
    )
    return make_finding("INV065", _file(template.source), message, evidence=[template.source])


def _file(name: str) -> Subject:
    return Subject(kind="file", name=name)
