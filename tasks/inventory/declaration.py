"""One place that declares a quantisation, in the normal form, before anything is held against the tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .record_quantization import Activations, QuantizationPart, QuantizationSource

_MOST_TARGETS = 20  # names of one part in the record
LONGEST_RAW = 2_000  # characters of a section that is not understood


@dataclass(frozen=True)
class NamePattern:
    """A pattern of module names and how the engine of its dialect reads it.

    Attributes:
        pattern: as declared, without the mark of its kind.
        kind: `exact`, `prefix`, `substring`, `glob`, `regex`, `transformers` or `class`.
        shown: as declared.
    """

    pattern: str
    kind: str
    shown: str


@dataclass(frozen=True)
class Declaration:
    """What one section or file declares.

    Attributes:
        source: file and JSON pointer.
        dialect: the method's own word.
        part: what holds for every module that nothing else names; None where the dialect is unknown.
        excluded: modules left in high precision.
        lists: whether the dialect names what it leaves out, so that all else should be in low precision.
        named: module name -> its own scheme; None for one left in high precision.
        rules: patterns with their own scheme, the first that matches holds.
        symmetric: None where it is not said.
        zero_points: whether zero points are to be stored; None where it is not said.
        act_order: whether the columns' order is stored (`g_idx`).
        kv_dtype: of the KV cache; empty where nothing is declared.
        kv_scheme: as declared.
        nested: whether it stands in the config of one part of the model and names modules from there.
        raw: of a section that is not understood.
    """

    source: str
    dialect: str
    part: QuantizationPart | None
    excluded: Sequence[NamePattern] = ()
    lists: bool = False
    named: Mapping[str, QuantizationPart | None] = field(default_factory=dict)
    rules: Sequence[tuple[NamePattern, QuantizationPart | None]] = ()
    symmetric: bool | None = None
    zero_points: bool | None = None
    act_order: bool = False
    kv_dtype: str = ""
    kv_scheme: str = ""
    nested: bool = False
    raw: str = ""

    def parts(self) -> Sequence[QuantizationPart]:
        """Every scheme that it declares, the general one first, each once, with the modules that it names."""
        found: dict[tuple[Any, ...], tuple[QuantizationPart, dict[str, None]]] = {}
        named = [(part, (name,)) for name, part in self.named.items() if part is not None]
        ruled = [(part, (*part.targets, rule.shown)) for rule, part in self.rules if part is not None]
        general = [(self.part, tuple(self.part.targets))] if self.part is not None else []
        for part, targets in (*general, *ruled, *named):
            if part.scheme != "none":
                known = found.setdefault(form_of(part), (part, {}))
                known[1].update(dict.fromkeys(targets))
        return [
            part.model_copy(update={"targets": tuple(targets)[:_MOST_TARGETS], "modules": 0})
            for part, targets in found.values()
        ]

    def summary(self) -> QuantizationSource:
        """For the record."""
        scheme, bits, group = joint_form(self.parts()) if self.part else ("", 0, 0)
        return QuantizationSource(
            source=self.source, dialect=self.dialect, scheme=scheme, bits=bits, group=group,
            kv_cache=self.kv_dtype,
        )  # fmt: skip


def form_of(part: QuantizationPart) -> tuple[str, int, int | tuple[int, ...]]:
    """What tells two parts apart."""
    group = part.group if isinstance(part.group, int) else tuple(part.group)
    return part.scheme, part.bits, group


def joint_form(parts: Sequence[QuantizationPart]) -> tuple[str, int, int | Sequence[int]]:
    """Scheme, bits and group of all parts together; `mixed` where they differ."""
    if not parts:
        return "none", 0, 0
    first = parts[0]
    scheme, bits, group = first.scheme, first.bits, first.group
    if any(form_of(part) != form_of(parts[0]) for part in parts):
        alike = {(part.scheme, part.bits) for part in parts}
        return (scheme, bits, 0) if len(alike) == 1 else ("mixed", 0, 0)
    return scheme, bits, group if isinstance(group, int) else list(group)


def make_part(
    scheme: str, bits: int, group: int | Sequence[int] = 0, activations: Activations | None = None
) -> QuantizationPart:
    """A part without targets."""
    return QuantizationPart(scheme=scheme, bits=bits, group=group, activations=activations)


def name_patterns(items: Any, kind: str, *, marked: bool = False) -> tuple[NamePattern, ...]:
    """The strings of a list as patterns.

    Args:
        items: a stranger's value; what is no list of strings gives nothing.
        kind: how the dialect reads them.
        marked: whether `re:` in front makes a regular expression of one.
    """
    found = []
    for item in sequence(items):
        if isinstance(item, str) and item:
            regex = marked and item.startswith("re:")
            found.append(NamePattern(item[3:] if regex else item, "regex" if regex else kind, item))
    return tuple(dict.fromkeys(found))


def sequence(value: Any) -> Sequence[Any]:
    """The items of a JSON list; nothing for anything else."""
    return value if isinstance(value, list | tuple) else ()


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def count(value: Any) -> int:
    """A whole number from 1 on that a format may have; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def flag(value: Any) -> bool | None:
    """A JSON truth value; None for anything else."""
    return value if isinstance(value, bool) else None


def word(value: Any) -> str:
    """A JSON string of a readable length; empty for anything else."""
    return value[:200] if isinstance(value, str) else ""


def raw_text(section: Any) -> str:
    """A section as JSON text, cut to a readable length."""
    text = json.dumps(section, sort_keys=True, default=str)
    return text if len(text) <= LONGEST_RAW else f"{text[:LONGEST_RAW]}..."
