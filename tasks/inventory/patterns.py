"""Tensor names folded into patterns, so that a release of 200,000 tensors is a table of some fifty rows.

Every number that stands alone after a dot becomes a placeholder: `{l}` for the layer, `{e}` for the expert,
`{i}` for any other. What is decided of a name (its role, its place) is decided once a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import prod

from day0.adapters.base.checkpoint import TensorBlock, TensorInfo, TensorKind, tensor_blocks

LAYER_WORDS = frozenset({"layers", "layer", "h", "blocks", "block", "blk", "resblocks"})
EXPERT_WORDS = frozenset({"experts", "expert"})

# At most nine digits: longer ones are no index and `int` refuses absurd ones.
_INDEX = re.compile(r"\.([0-9]{1,9})(?=\.|\Z)")
_EXPERTS = ".experts."
_EXPERT = re.compile(r"\.experts\.([0-9]{1,9})(?=[.\n]|\Z)")
MAX_GROUPS = 30_000  # of a pattern in a layer; a release of half a million tensors has some ten thousand
AT_ONCE = 32_768  # names looked at together, so that hostile ones cost no more memory than others
_MARK = "\0"  # stands for the index of an expert while names are folded


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


FURTHER = Pattern("(further names)", -1, -1)
"""What stands for all names beyond `MAX_GROUPS`."""

Member = tuple[str, ...]
"""The indices of one tensor of a group that are not the layer's."""


class Members(tuple[Member, ...]):
    """The members of a group; most layers hold the same experts, and their groups share one value.

    What follows from them is worked out once.
    """

    @cached_property
    def distinct(self) -> frozenset[Member]:
        """As a set; the empty member alone where no tensor has further indices."""
        return frozenset(self) or frozenset({()})

    @cached_property
    def index_sets(self) -> Sequence[frozenset[int]]:
        """The indices, placeholder by placeholder."""
        return [frozenset(map(int, column)) for column in zip(*self, strict=True)]


_NONE = Members()


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
        others: the indices of each that are not the layer's; empty where there are none.
        heaped: elements of tensors whose shapes differ, where a release has too many to tell them apart.
    """

    pattern: Pattern
    layer: int | None
    dtype: str
    shape: tuple[int, ...]
    example: str
    count: int = 0
    bytes: int = 0
    others: Members = _NONE
    heaped: int = 0

    @property
    def elements(self) -> int:
        """Stored elements of all of them."""
        return self.heaped or prod(self.shape) * self.count


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
    return Listing(fold.finish(), files)


class _Fold:
    """Groups as they grow.

    The experts' indices are what makes names many: they are taken out of all names of a file at once, and
    what is left, some thousand distinct lines, is looked at one by one.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, TensorKind], Group] = {}
        self._patterns: dict[str, Pattern] = {}
        self._members: dict[tuple[Member, Member, Member], Members] = {}
        self._parts: dict[tuple[str, str, TensorKind], list[Members | list[Member]]] = {}

    def add(self, block: TensorBlock) -> None:
        """Takes the tensors of one file."""
        for begin in range(0, len(block.names), AT_ONCE):
            span = slice(begin, begin + AT_ONCE)
            self._add(block.names[span], block.kinds[span])

    def _add(self, names: Sequence[str], held_kinds: Sequence[TensorKind]) -> None:
        lines, experts = _without_experts(names)
        taken, kinds = iter(experts), dict(zip(map(id, held_kinds), held_kinds, strict=True))
        alike: dict[tuple[str, int], list[str]] = {}
        for key in zip(lines, map(id, held_kinds), strict=True):  # equal kinds are one value, mostly
            held = alike.get(key)
            if held is not None:  # a name comes once: this is another expert of the same line
                held.append(next(taken))
            else:
                alike[key] = [next(taken)] if experts and _MARK in key[0] else []
        for (line, kind), held in alike.items():
            if len(self.groups) < MAX_GROUPS:
                self._take(line, kinds[kind], tuple(held))
            else:
                self._heap(line, kinds[kind], len(held) or 1)

    def _take(self, line: str, kind: TensorKind, experts: Member) -> None:
        """Takes the tensors of one line: one for each expert; without experts the one of that name."""
        name = line.replace(_MARK, experts[0]) if experts else line
        texts = _INDEX.split(name)
        pattern = _make_pattern(texts[::2])
        pattern = self._patterns.setdefault(pattern.text, pattern)
        indices, slot, place = texts[1::2], pattern.layer_slot, -1
        if experts:
            starts = [match.start(1) for match in _INDEX.finditer(name)]
            place = starts.index(line.index(_MARK))
        layer = indices.pop(slot) if slot >= 0 else ""
        if 0 <= slot < place:
            place -= 1
        key = pattern.text, layer, kind
        group = self.groups.get(key)
        if group is None:
            number = int(layer) if slot >= 0 else None
            group = self.groups[key] = Group(pattern, number, kind.dtype, kind.shape, name)
        number_of_tensors = len(experts) or 1
        group.count += number_of_tensors
        group.bytes += kind.bytes * number_of_tensors
        if indices:
            self._note(self._parts.setdefault(key, []), place, indices, experts)

    def _note(
        self, parts: list[Members | list[Member]], place: int, indices: Sequence[str], experts: Member
    ) -> None:
        """Adds the members of one line to those of its group."""
        if experts:
            parts.append(self._made(place, indices, experts))
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(tuple(indices))
        else:
            parts.append([tuple(indices)])

    def _made(self, place: int, indices: Sequence[str], experts: Member) -> Members:
        """The members of one line: its indices with each expert in its place."""
        before, after = tuple(indices[:place]), tuple(indices[place + 1 :])
        key = before, after, experts
        made = self._members.get(key)
        if made is None:
            made = self._members[key] = Members((*before, expert, *after) for expert in experts)
        return made

    def finish(self) -> Sequence[Group]:
        """All groups, whole."""
        shared: dict[Members, Members] = {}
        for key, parts in self._parts.items():
            first = parts[0]
            whole = first if len(parts) == 1 and isinstance(first, Members) else Members(chain(*parts))
            self.groups[key].others = shared.setdefault(whole, whole)
        return tuple(self.groups.values())

    def _heap(self, name: str, kind: TensorKind, number: int) -> None:
        """Takes tensors that are counted and nothing else: no release has so many kinds of names."""
        key = FURTHER.text, "", TensorKind(kind.dtype, (), 0)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(FURTHER, None, kind.dtype, (), name)
        group.count += number
        group.bytes += kind.bytes * number
        group.heaped += prod(kind.shape) * number


def _without_experts(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Each name with the index of its expert replaced by a mark, and these indices in order."""
    joined = "\n".join(names)
    if _MARK in joined or joined.count("\n") != len(names) - 1:  # hostile names are taken as they are
        return names, ()
    parts = _EXPERT.split(joined)
    lines = f"{_EXPERTS}{_MARK}".join(parts[::2]).split("\n")
    if any(line.count(_MARK) > 1 for line in set(lines)):  # experts within experts
        return names, ()
    return lines, parts[1::2]


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
