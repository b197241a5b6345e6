"""The stored tensors against those that the config implies, name by name and shape by shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod

from day0.adapters.base.checkpoint import TensorFault
from day0.adapters.models.expected_run import Answer, ImpliedTensor

from .counts import Counted
from .folding import Fold, fold_names, group_names
from .patterns import Group
from .seen import Seen

_INDEX = re.compile(r"(?<=\.)[0-9]{1,9}(?=\.|\Z)")
# Last word of a packed weight's name -> what the model calls the weight.
_FORMS = dict.fromkeys(("weight_packed", "qweight", "W_q", "codes", "weight_qdata", "_weight_qdata", "B",
                        "q_weight", "trellis"), "weight")  # fmt: skip
_BLOCKS, _PARTS = "_blocks", "._data"
_ANNOUNCED = ("index_only", "missing_shard", "unreadable_shard")
MAX_ASKED = 100_000  # names; a release of 61 layers has some 1,500
_TOLERANCE = 0.05  # formats that pack an odd number of bits pad rows to whole words

Key = tuple[str, tuple[str, ...]]
"""A name with `#` for each index, and the indices."""


@dataclass(frozen=True)
class Deviation:
    """Tensors of one verdict.

    Attributes:
        folds: by pattern.
        notes: pattern -> what more is known.
    """

    folds: Sequence[Fold] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """What stored and implied tensors say of each other.

    Attributes:
        verdicts: `expected_missing`, `unexpected`, `misshapen`, where there are such.
        ignored: stored tensors that the model's own class leaves alone.
    """

    verdicts: Mapping[str, Deviation] = field(default_factory=dict)
    ignored: int = 0

    def number(self, verdict: str) -> int:
        """Tensors of a verdict."""
        return sum(fold.tensors for fold in self.verdicts.get(verdict, Deviation()).folds)


def weight_name(name: str) -> str:
    """What the model calls the weight that is stored under that name in a packed form."""
    while name.endswith(_PARTS):  # quanto keeps the weight's own name
        name = name.removesuffix(_PARTS)
    module, dot, last = name.rpartition(".")
    if last.endswith(_BLOCKS):
        last = last.removesuffix(_BLOCKS)
    return f"{module}{dot}{_FORMS.get(last, last)}"


def asked_names(counted: Iterable[Counted], faults: Iterable[TensorFault]) -> Sequence[str]:
    """One weight of each pattern and layer, to be told by the model's own names."""
    groups = [item.group for item in counted if item.place.role != "aux"]
    names = (
        weight_name(name)
        for group in (*groups, *group_names(_announced(faults)))
        for name in _representatives(group).values()
    )
    return list(islice(dict.fromkeys(names), MAX_ASKED))


def _representatives(group: Group) -> Mapping[tuple[str, ...], str]:
    """One name for each set of indices that are no expert's: renamings may depend on these."""
    mask, _ = _key(group.example)
    found: dict[tuple[str, ...], str] = {}
    for own, full in _members(group):
        if own not in found:
            found[own] = _filled(mask, full)
    return found


def _members(group: Group) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each tensor's indices without layer and expert, and all of them."""
    slot, expert = group.pattern.layer_slot, group.pattern.expert_slot
    layer = _key(group.example)[1][slot] if slot >= 0 else ""
    for others in group.others or [()]:
        full = (*others[:slot], layer, *others[slot:]) if slot >= 0 else others
        yield tuple(index for place, index in enumerate(full) if place not in (slot, expert)), full


def compare(seen: Seen, answer: Answer) -> Compared:
    """Every deviation; none where it is not known what the config implies."""
    if answer.reason or not seen.counted or seen.release.checkpoint.format == "gguf":
        return Compared()
    return _Comparison(seen, answer).compared()


class _Comparison:
    def __init__(self, seen: Seen, answer: Answer) -> None:
        self._seen = seen
        self._answer = answer
        self._implied = {_key(tensor.name): tensor for tensor in answer.tensors}
        self._tied = {_key(target): _key(source) for target, source in answer.tied.items()}
        self._ignored_names = frozenset(answer.ignored)
        self._spelt: dict[str, str] = {}

    def compared(self) -> Compared:
        held: set[Key] = set()
        unexpected: list[str] = []
        misshapen: dict[str, str] = {}
        ignored = 0
        for item in self._seen.counted:
            if item.place.role == "aux":
                continue
            for name, key in self._keys(item.group):
                held.add(key)
                tensor = self._implied.get(key)
                if tensor is not None:
                    if not _fits(item, tensor):
                        misshapen[name] = _shapes(item, tensor)
                elif item.place.part == "mtp" or weight_name(item.group.example) in self._ignored_names:
                    ignored += 1
                elif item.place.role != "buffer" and key not in self._tied:
                    unexpected.append(name)
        for group in group_names(_announced(self._seen.release.checkpoint.faults)):
            held.update(key for _, key in self._keys(group))
        missing = () if self._seen.awaited.untold else self._missing(held)
        found = {
            "expected_missing": Deviation(fold_names(missing)),
            "unexpected": Deviation(fold_names(unexpected)),
            "misshapen": _with_notes(misshapen),
        }
        return Compared({word: item for word, item in found.items() if item.folds}, ignored)

    def _missing(self, held: set[Key]) -> Iterator[str]:
        shared = {source for target, source in self._tied.items() if target in held}
        for key, tensor in self._implied.items():
            if key not in held and not tensor.optional and key not in shared:
                yield self._stored_name(key, tensor)

    def _stored_name(self, key: Key, tensor: ImpliedTensor) -> str:
        """The name as this release would spell it: like its neighbours', else as published."""
        mask = self._spelt.get(key[0])
        if mask is None or mask.count("#") != len(key[1]):
            return tensor.published
        return _filled(mask, key[1])

    def _keys(self, group: Group) -> Iterator[tuple[str, Key]]:
        """Each tensor of a group: its name as stored and its key by the model's own names."""
        mask, _ = _key(group.example)
        owns: dict[tuple[str, ...], str] = {}
        for part, full in _members(group):
            name = _filled(mask, full)
            if part not in owns:
                asked = weight_name(name)
                own_mask, own_indices = _key(self._answer.names.get(asked, asked))
                owns[part] = own_mask if own_indices == full else ""
                if owns[part]:
                    self._spelt.setdefault(own_mask, mask)
            if owns[part]:
                yield name, (owns[part], full)
            else:  # a renaming that takes an index away or puts one in holds for this name alone
                asked = weight_name(name)
                yield name, _key(self._answer.names.get(asked, asked))


def _key(name: str) -> Key:
    return _INDEX.sub("#", name), tuple(_INDEX.findall(name))


def _filled(mask: str, indices: Sequence[str]) -> str:
    parts = mask.split("#")
    if len(parts) != len(indices) + 1:  # a name that holds a `#` of its own
        return mask
    return parts[0] + "".join(index + part for index, part in zip(indices, parts[1:], strict=True))


def _announced(faults: Iterable[TensorFault]) -> Iterator[str]:
    return (fault.name for fault in faults if fault.fault in _ANNOUNCED)


def _fits(item: Counted, tensor: ImpliedTensor) -> bool:
    wanted = prod(tensor.shape)
    if item.packing or (not item.place.counts):
        held = item.params / item.group.count if item.place.counts else prod(item.group.shape)
        return abs(held - wanted) <= _TOLERANCE * wanted
    if tensor.converted:  # its axes may stand in another order
        return prod(item.group.shape) == wanted
    return item.group.shape == tensor.shape


def _shapes(item: Counted, tensor: ImpliedTensor) -> str:
    return f"{list(item.group.shape)} is stored, {list(tensor.shape)} is implied"


def _with_notes(misshapen: Mapping[str, str]) -> Deviation:
    folds = fold_names(misshapen)
    return Deviation(folds, {fold.pattern: misshapen[fold.example] for fold in reversed(folds)})
