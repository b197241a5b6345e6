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

from day0.adapters.base.checkpoint import TensorInfo, tensor_rows

LAYER_WORDS = frozenset({"layers", "layer", "h", "blocks", "block", "blk", "resblocks"})
EXPERT_WORDS = frozenset({"experts", "expert"})

# At most nine digits: longer ones are no index and `int` refuses absurd ones.
_INDEX = re.compile(r"\.([0-9]{1,9})(?=\.|$)")


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
    patterns: dict[tuple[str, ...], Pattern] = {}
    groups: dict[tuple[int, str, str, tuple[int, ...]], Group] = {}
    files: dict[str, FileCount] = {}
    for name, dtype, shape, path, size in tensor_rows(tensors):
        parts = _INDEX.split(name)
        texts = tuple(parts[::2])
        pattern = patterns.get(texts)
        if pattern is None:
            pattern = patterns[texts] = _make_pattern(texts)
        indices = parts[1::2]
        layer = indices.pop(pattern.layer_slot) if pattern.layer_slot >= 0 else ""
        key = (id(pattern), layer, dtype, shape)
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(pattern, int(layer) if layer else None, dtype, shape, name)
        group.count += 1
        group.bytes += size
        if indices:
            group.others.append(tuple(indices))
        file = files.get(path)
        if file is None:
            file = files[path] = FileCount()
        file.tensors += 1
        file.dtypes.add(dtype)
    return Listing(tuple(groups.values()), files)


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
