"""Statements of a config that no loader can follow: counts that count nothing, words and sections amiss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..finding import Finding, Subject, make_finding
from .config_facts import KEYS, NORM_EPS, ConfigFacts, is_count, nested_mappings
from .counts import Counted, LayerCount

# Facts that are at least one wherever they are stated; the others may be 0 for "has none".
_POSITIVE = ("hidden_size", "layers", "heads", "kv_heads", "head_dim", "vocab_size", "max_positions")
# Fact -> roles of tensors that cannot exist beside a count that counts nothing.
_PROOF: dict[str, tuple[str, ...]] = {
    "hidden_size": ("embedding",),
    "vocab_size": ("embedding",),
    "heads": ("attention",),
    "kv_heads": ("attention",),
    "head_dim": ("attention",),
    "experts": ("expert",),
    "top_k": ("expert",),
}
_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "vision_config",
             "audio_config", "quantization_config", "compression_config", "rope_scaling", "rope_parameters",
             "auto_map")  # fmt: skip
_POSITIVE_REALS = ("rope_theta", "rotary_emb_base", "rope_local_base_freq")
_LONGEST = 60  # characters of a stranger's value in a message


def statement_findings(
    facts: ConfigFacts, counted: Sequence[Counted], layers: Sequence[LayerCount], *, gguf: bool
) -> Sequence[Finding]:
    """All findings about statements of the config that cannot hold in any model.

    Args:
        facts: the config.
        counted: all groups; they prove some statements wrong.
        layers: of the text model, by the tensors.
        gguf: GGUF files name their architecture themselves, so that none is missed in the config.
    """
    findings = [*_counts(facts, counted, layers), *_numbers(facts.config), *_sections(facts.config)]
    if facts.config and not gguf:
        findings += _model_type(facts.config)
    return tuple({finding.id: finding for finding in findings}.values())


def _counts(
    facts: ConfigFacts, counted: Sequence[Counted], layers: Sequence[LayerCount]
) -> Iterable[Finding]:
    roles = {item.place.role for item in counted if item.place.part == "text"}
    for fact, keys in KEYS.items():
        key = next((key for key in keys if facts.text.get(key) is not None), None)
        if key is None or _counts_something(fact, facts.text[key]):
            continue
        least = 1 if fact in _POSITIVE else 0
        message = (
            f"the config states {key} {_show(facts.text[key])}, which is no whole number from {least} on"
        )
        against = ""
        if fact == "layers" and layers:
            against = f"; the tensors hold {len({layer.index for layer in layers})} layers"
        elif roles.intersection(_PROOF.get(fact, ())):
            against = f"; the tensors hold weights of the role {_PROOF[fact][0]}"
        yield make_finding(
            "INV033",
            _subject(f"{facts.pointer}/{key}"),
            message + against,
            evidence=[f"config.json#{facts.pointer}/{key}", *(["headers"] if against else [])],
            severity="error" if against else None,
        )


def _counts_something(fact: str, value: Any) -> bool:
    if fact == "sliding_window" and (value is False or value == -1):  # both are in use for "none"
        return True
    items = value if isinstance(value, list | tuple) else [value]  # one value a layer
    stated = [item for item in items if item is not None]
    if not all(is_count(item) for item in stated):
        return False
    return fact not in _POSITIVE or not stated or max(stated) > 0


def _numbers(config: Mapping[str, Any]) -> Iterable[Finding]:
    """Numbers that are none: NaN anywhere, and bases, factors and epsilons that are not finite and positive.

    Infinity elsewhere is left alone: published configs mean "no limit" by it (`time_step_limit`).
    """
    for pointer, value in _leaves(config):
        section, _, key = pointer.rpartition("/")
        rope = section.rpartition("/")[2] in ("rope_scaling", "rope_parameters")
        number = _number(value)
        if number is not None and math.isnan(number):
            said = "which is no number"
        elif key in _POSITIVE_REALS or (rope and key == "factor"):
            said = "" if _finite(number) and number else "which is no finite number above 0"
        elif key in NORM_EPS:
            said = "" if _finite(number) else "which is no finite number from 0 on"
        else:
            said = ""
        if said and value is not None:
            message = f"the config states {key} {_show(value)}, {said}"
            yield make_finding("INV033", _subject(pointer), message, evidence=[f"config.json#{pointer}"])


def _leaves(value: Any, pointer: str = "", depth: int = 8) -> Iterable[tuple[str, Any]]:
    """Every value that is no container, with its JSON pointer; items of a list under the list's own."""
    if isinstance(value, Mapping) and "__float__" not in value:
        if depth:
            for key, part in value.items():
                yield from _leaves(part, f"{pointer}/{key}", depth - 1)
    elif isinstance(value, list | tuple):
        if depth:
            for part in value:
                yield from _leaves(part, pointer, depth - 1)
    else:
        yield pointer, value


def _number(value: Any) -> float | None:
    """The number that a value is; None where it is none. Tagged ones are as `parse_config` leaves them."""
    if isinstance(value, Mapping):
        word = value.get("__float__")
        return float(word) if word in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number) and number >= 0


def _sections(config: Mapping[str, Any]) -> Iterable[Finding]:
    for pointer, part in nested_mappings(config):
        for key in _SECTIONS:
            value = part.get(key)
            if value is not None and not isinstance(value, Mapping):
                yield _amiss(f"{pointer}/{key}", value, "a section of keys and values")
        names = part.get("architectures")
        listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and not listed:
            yield _amiss(f"{pointer}/architectures", names, "a list of class names")


def _amiss(pointer: str, value: Any, expected: str) -> Finding:
    key = pointer.rpartition("/")[2]
    message = f"the config states {key} {_show(value)}, where {expected} belongs; it was ignored"
    return make_finding("INV033", _subject(pointer), message, evidence=[f"config.json#{pointer}"])


def _model_type(config: Mapping[str, Any]) -> Iterable[Finding]:
    word = config.get("model_type")
    if isinstance(word, str) and word:
        return
    stated = "states no model_type" if word is None else f"states model_type {_show(word)}, which is no name"
    yield make_finding("INV034", _subject("/model_type"), f"the config {stated}", evidence=["config.json"])


def _subject(pointer: str) -> Subject:
    return Subject(kind="config", name=f"config.json#{pointer}")


def _show(value: Any) -> str:
    """A stranger's value, printable and bounded."""
    number = _number(value)
    if isinstance(value, Mapping) and number is not None:
        return str(value["__float__"])
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return f"{'minus ' if value < 0 else ''}a number of {len(str(abs(value)))} digits"
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
