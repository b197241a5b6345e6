"""Tensor names folded into patterns, so that a release of 200,000 tensors is a table of some fifty rows.

Every number that stands alone after a dot becomes a placeholder: `{l}` for the layer, `{e}` for the expert,
`{i}` for any other. What is decided of a name (its role, its place) is decided once a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from day0.adapters.base.checkpoint import TensorBlock, TensorInfo, TensorKind, tensor_blocks

LAYER_WORDS = frozenset({"layers", "layer", "h", "blocks", "block", "blk", "resblocks"})
EXPERT_WORDS = frozenset({"experts", "expert"})

# At most nine digits: longer ones are no index and `int` refuses absurd ones.
_INDEX = re.compile(r"\.([0-9]{1,9})(?=\.|\Z)")
_DIGITS = re.compile(r"[0-9]+")
_ZEROES = str.maketrans("123456789", "000000000")


@dataclass(frozen=True)
class Pattern:
    """A name with its indices taken out.

    Attributes:
        text: e.g. `model.layers.{l}.mlp.experts.{e}.down_proj.weight`.
        layer_slot: which placeholder, counted from 0, is the layer; -1 where there is none.
        expert_slot: which one is the expert; -1 where there is none.
    """

    text: str
    layer_slot: int
    expert_slot: int

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """What stands between the dots."""
        return tuple(self.text.split("."))

    @cached_property
    def stack(self) -> str:
        """The module path of the layers, e.g. `model.layers`; empty where the pattern has no layer."""
        return self.text.split(".{l}")[0] if self.layer_slot >= 0 else ""


@dataclass
class Group:
    """The tensors of one pattern, dtype and shape in one layer (all of them where there is no layer).

    Attributes:
        pattern: of their names.
        layer: index; None where the pattern has none.
        dtype: as stored.
        shape: of each.
        example: name of the first of them.
        count: number of tensors.
        bytes: of all of them.
        others: the indices of each that are not the layer's.
    """

    pattern: Pattern
    layer: int | None
    dtype: str
    shape: tuple[int, ...]
    example: str
    count: int = 0
    bytes: int = 0
    others: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def elements(self) -> int:
        """Stored elements of all of them."""
        return prod(self.shape) * self.count


@dataclass
class FileCount:
    """What one tensor file holds."""

    tensors: int = 0
    dtypes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Listing:
    """All tensors, folded.

    Attributes:
        groups: in the order in which the checkpoint lists them.
        files: file -> what it holds.
    """

    groups: Sequence[Group]
    files: Mapping[str, FileCount]


def list_tensors(tensors: Mapping[str, TensorInfo]) -> Listing:
    """Folds all tensors in one pass."""
    fold = _Fold()
    files: dict[str, FileCount] = {}
    for block in tensor_blocks(tensors):
        fold.add(block)
        file = files.setdefault(block.file, FileCount())
        file.tensors += len(block.names)
        file.dtypes.update(kind.dtype for kind in set(block.kinds))
    return Listing(tuple(fold.groups.values()), files)


class _Form(NamedTuple):
    """Where the digits of a name stand; names that differ only in their digits have one form.

    Attributes:
        layer: first and last place of the layer's index; None where there is none.
        others: of every other index.
        fixed: of digits that belong to the name, as in `w1`.
    """

    layer: tuple[int, int] | None
    others: Sequence[tuple[int, int]]
    fixed: Sequence[tuple[int, int]]


class _Fold:
    """Groups as they grow. What many tensors share is made once: half a million take a second."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, TensorKind], Group] = {}
        self._forms: dict[str, _Form] = {}
        self._patterns: dict[str, Pattern] = {}
        self._by_text: dict[str, Pattern] = {}
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, block: TensorBlock) -> None:
        """Takes the tensors of one file."""
        groups, forms, patterns, shared = self.groups, self._forms, self._patterns, self._shared
        for name, mask, kind in zip(block.names, _masks(block.names), block.kinds, strict=True):
            place, slots, fixed = forms.get(mask) or self._form(name, mask)
            key = mask + "".join([name[a:b] for a, b in fixed]) if fixed else mask
            pattern = patterns.get(key) or self._pattern(name, key)
            layer = name[place[0] : place[1]] if place else ""
            group = groups.get((pattern.text, layer, kind))
            if group is None:
                number = int(layer) if place else None
                group = Group(pattern, number, kind.dtype, kind.shape, name)
                groups[pattern.text, layer, kind] = group
            group.count += 1
            group.bytes += kind.bytes
            if slots:
                others = tuple([name[a:b] for a, b in slots])
                group.others.append(shared.setdefault(others, others))

    def _form(self, name: str, mask: str) -> _Form:
        indices = [match.span(1) for match in _INDEX.finditer(name)]
        slot = _make_pattern(_INDEX.split(name)[::2]).layer_slot
        fixed = [span.span() for span in _DIGITS.finditer(name) if span.span() not in indices]
        layer = indices.pop(slot) if slot >= 0 else None
        form = self._forms[mask] = _Form(layer, tuple(indices), tuple(fixed))
        return form

    def _pattern(self, name: str, key: str) -> Pattern:
        pattern = _make_pattern(_INDEX.split(name)[::2])
        pattern = self._patterns[key] = self._by_text.setdefault(pattern.text, pattern)
        return pattern


def _masks(names: Sequence[str]) -> Sequence[str]:
    """Each name with every digit made a 0: names of one form look the same."""
    masks = "\n".join(names).translate(_ZEROES).split("\n")
    if len(masks) == len(names):
        return masks
    return [name.translate(_ZEROES) for name in names]  # a hostile name holds a line break


def _make_pattern(texts: Sequence[str]) -> Pattern:
    text, layer_slot, expert_slot = texts[0], -1, -1
    for slot, following in enumerate(texts[1:]):
        word = texts[slot].rpartition(".")[2]
        if layer_slot < 0 and word in LAYER_WORDS:
            layer_slot, mark = slot, "{l}"
        elif word in EXPERT_WORDS:
            expert_slot, mark = slot, "{e}"
        else:
            mark = "{i}"
        text += f".{mark}{following}"
    return Pattern(text, layer_slot, expert_slot)
