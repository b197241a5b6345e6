"""The sizes in which one node of each kind is tried: lengths, batches, paddings, caches, odd widths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from day0.adapters.base.skeleton import Node

from ..thresholds import SWEEP_LENGTH

LENGTHS = (1, 7, 127, 128, 129)
CACHED = (1, 127, 128)
"""Tokens in the cache of one decode step."""

ONES = ("length 1", "batch 1", "one token, idle experts", "decode after 1")
"""Cases with a size of 1, for which torch compiles apart from all others (its `0/1 specialisation`)."""

_SEQUENCES = 2
_ODD_WIDTHS: Mapping[str, tuple[str, int]] = {
    "vocabulary + 1": (r"vocab_size", 1),
    "feed-forward + 3": (r"(\w+_)?intermediate_size|ffn_dim|ffn_hidden_size|n_inner", 3),
}
"""Case -> which sizes of the config become no multiple of 8, 16 or 64, and by how much."""

ODD_WIDTHS = tuple(_ODD_WIDTHS)
"""Cases whose model is another one: they say whether a target takes such sizes, not what it compiles anew."""


@dataclass(frozen=True)
class Case:
    """One forward of the sweep.

    Attributes:
        name: as the record has it.
        sequences: in the batch; 0 where it is the example's, see `dynamic_shapes.example_sizes`.
        length: of each, likewise.
        padding: tokens of padding before the shortest one.
        experts: whether it is for kinds with experts only: fewer tokens than leave none of them idle.
        decode: whether one token follows the sequence, and is what is looked at.
        widths: sizes of the config that differ, by path; empty for the model's own.
    """

    name: str
    sequences: int
    length: int
    padding: int = 0
    experts: bool = False
    decode: bool = False
    widths: Mapping[str, int] | None = None

    @property
    def mask(self) -> list[list[int]] | None:
        """1 for tokens, 0 for padding, which grows with the row; None without."""
        if not self.padding:
            return None
        rows = range(self.sequences)
        pads = [self.padding * row // max(1, self.sequences - 1) for row in rows]
        return [[0] * pad + [1] * (self.length - pad) for pad in pads]

    def concerns(self, node: Node) -> bool:
        """Whether the case asks anything new of such a node."""
        if self.widths:
            vocabulary = self.name.startswith("vocabulary")
            return node.role in ("embedding", "head") if vocabulary else bool(node.feed_forward)
        if self.decode:
            return node.state.kind != "none"
        return node.feed_forward == "moe" or not self.experts


EXAMPLE = Case("example", 0, 0)
RAGGED = Case("ragged, padded by up to 5", 0, 0, padding=5)
DECODE = Case("decode after the example", 0, 0, decode=True)


def sized(case: Case, sequences: int, length: int) -> Case:
    """The case with the example's sizes, where it has none of its own."""
    return case if case.length else replace(case, sequences=sequences, length=length)


def before(case: Case) -> Sequence[Case]:
    """What a graph that a case is asked of was compiled by: the example, padded or as a decode step."""
    if case.widths or case is EXAMPLE:
        return ()
    return (RAGGED,) if case.padding else (EXAMPLE, DECODE) if case.decode else (EXAMPLE,)


def cases_of(config: Mapping[str, Any]) -> list[Case]:
    """Every case that the model takes."""
    limit = longest(config)
    return [case for case in _all_cases(config) if case.length + case.decode <= limit]


def untaken(config: Mapping[str, Any], node: Node) -> list[str]:
    """The cases that are too long for the model or for this, with that reason."""
    limit = longest(config)
    return [
        f"{case.name}: longer than {limit} tokens"
        for case in _all_cases(config)
        if case.length + case.decode > limit and case.concerns(node)
    ]


def longest(config: Mapping[str, Any]) -> int:
    """Tokens of the longest sequence that is tried."""
    return min(int(text_part(config).get("max_position_embeddings") or SWEEP_LENGTH), SWEEP_LENGTH)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config as the text model sees it: that of a composite one laid over the rest."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, Mapping) else config


def changed(config: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The config with other integers at these paths (`text_config.vocab_size`)."""
    found = dict(config)
    for path, value in values.items():
        head, _, rest = path.partition(".")
        found[head] = changed(found[head], {rest: value}) if rest else value
    return found


def integers(config: Mapping[str, Any], pattern: str) -> dict[str, int]:
    """Path -> value of the positive integers of the text model whose name fits."""
    parts: Sequence[tuple[str, Any]] = [("", config), ("text_config.", config.get("text_config"))]
    return {
        f"{prefix}{name}": value
        for prefix, part in parts
        if isinstance(part, Mapping)
        for name, value in part.items()
        if type(value) is int and value > 1 and re.fullmatch(pattern, name)
    }


def _all_cases(config: Mapping[str, Any]) -> Iterator[Case]:
    window = _window(config)
    yield EXAMPLE
    for length in LENGTHS:
        yield Case(f"length {length}", _SEQUENCES, length)
    if window:
        yield Case(f"length {window + 1}, beyond the window", 1, window + 1)
    yield Case("batch 1", 1, 7)
    yield Case("batch 3", 3, 7)
    yield Case("one token, idle experts", 1, 1, experts=True)
    yield RAGGED
    yield Case("ragged, padded by up to 100", _SEQUENCES, 127, padding=100)
    yield DECODE
    for length in CACHED:
        yield Case(f"decode after {length}", _SEQUENCES, length, decode=True)
    if window:
        yield Case(f"decode after {window + 1}, beyond the window", 1, window + 1, decode=True)
    for name, (pattern, more) in _ODD_WIDTHS.items():
        widths = {path: value + more for path, value in integers(config, pattern).items()}
        if widths:
            yield Case(name, _SEQUENCES, 7, widths=widths)


def _window(config: Mapping[str, Any]) -> int:
    """Tokens that a sliding or chunked attention sees; 0 where all see all."""
    part = text_part(config)
    for name in ("sliding_window", "attention_chunk_size", "local_attention_window_size"):
        if isinstance(part.get(name), int) and part.get("use_sliding_window", True):
            return int(part[name])
    return 0
