"""What absent and unread tensor files may hold, so that what they explain is not told as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from day0.adapters.base.checkpoint import Checkpoint

from .folding import group_names
from .member_sets import members
from .patterns import Group, Member
from .stored_forms import Neighbours

_FAULTS = ("missing_shard", "unreadable_shard")
_UNREAD = ("shard_unreadable", "lfs_pointer", "too_small", "gguf_unreadable")


@dataclass(frozen=True)
class Awaited:
    """Tensors that are neither here nor lost.

    Attributes:
        groups: tensors that the index places in files that are not there or cannot be read.
        untold: whether a file is absent or unread of which no index tells what it holds.
        files: absent and unread files, as far as their names are known.
    """

    groups: Sequence[Group]
    untold: bool
    files: frozenset[str]

    @property
    def any(self) -> bool:
        """Whether anything is awaited at all."""
        return self.untold or bool(self.groups)

    @cached_property
    def near(self) -> Neighbours:
        """The awaited groups by pattern and layer."""
        return Neighbours(self.groups)

    @cached_property
    def layers(self) -> Mapping[str, Set[int]]:
        """Pattern -> layers in which some of its tensors are awaited."""
        found: dict[str, set[int]] = {}
        for group in self.groups:
            if group.layer is not None:
                found.setdefault(group.pattern.text, set()).add(group.layer)
        return found

    @cached_property
    def stacks(self) -> Mapping[str, Set[int]]:
        """Module path of layers -> layers of which some tensor is awaited."""
        found: dict[str, set[int]] = {}
        for group in self.groups:
            if group.layer is not None:
                found.setdefault(group.pattern.stack, set()).add(group.layer)
        return found

    def experts(self, text: str, layer: int) -> Set[int]:
        """Experts of which that weight of that layer is awaited."""
        found: set[int] = set()
        for group in self.groups if text in self.layers else ():
            if group.pattern.text == text and group.layer == layer:
                slot = group.pattern.expert_slot - (0 <= group.pattern.layer_slot < group.pattern.expert_slot)
                found |= group.others.index_sets[slot]
        return found

    def beside(self, names: Sequence[str], group: Group) -> Set[Member]:
        """The members of a group of which a neighbour with one of these names is awaited."""
        if self.untold:
            return members(group)
        found: set[Member] = set()
        for name in names:
            for side in self.near.near(name, group):
                found |= members(side)
        return found


NOTHING = Awaited((), False, frozenset())


def read_awaited(checkpoint: Checkpoint) -> Awaited:
    """What the faults and remarks of a checkpoint say of tensors that are not here."""
    names = [fault.name for fault in checkpoint.faults if fault.fault in _FAULTS]
    named = frozenset(checkpoint.index.files) if checkpoint.index is not None else frozenset()
    files = {anomaly.subject for anomaly in checkpoint.anomalies if is_unread(anomaly.code)}
    files |= {anomaly.subject for anomaly in checkpoint.anomalies if anomaly.code == "missing_shard"}
    return Awaited(group_names(names) if names else (), bool(files - named), frozenset(files))


def is_unread(code: str) -> bool:
    """Whether an adapter's remark means that nothing of a tensor file could be read."""
    return code in _UNREAD or (code.startswith("header_") and code != "header_only_tensor")
