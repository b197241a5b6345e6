"""Exact counts over placed groups: totals, roles, layers, active parameters, the table of patterns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from day0.adapters.base.values import Size

from .index_sets import format_indices
from .patterns import Group
from .record import ActiveParams, RoleSize, TensorPattern, Totals
from .roles import Place
from .stored_weights import StoredWeights


class Counted(NamedTuple):
    """A group with its place and the parameters that it stands for (0 for side tensors and buffers).

    Attributes:
        group: the tensors.
        place: what they are.
        params: logical parameters of all of them.
        packing: how more than one weight is kept in an element.
        logical: shape of one unpacked; empty where nothing is packed or the header does not show it.
    """

    group: Group
    place: Place
    params: int
    packing: str
    logical: tuple[int, ...] = ()


@dataclass(frozen=True)
class LayerCount:
    """One layer of the text model as the tensors show it."""

    name: str
    index: int
    groups: Sequence[Counted]

    @property
    def params(self) -> int:
        """Logical parameters."""
        return sum(counted.params for counted in self.groups)

    @property
    def bytes(self) -> int:
        """As stored, side tensors included."""
        return sum(counted.group.bytes for counted in self.groups)

    @property
    def roles(self) -> Mapping[str, Size]:
        """Role of the weights -> parameters and bytes; side tensors go with the weights that they serve."""
        found: dict[str, list[int]] = {}
        for counted in self.groups:
            size = found.setdefault(counted.place.owner, [0, 0])
            size[0] += counted.params
            size[1] += counted.group.bytes
        return {role: Size(elements=found[role][0], bytes=found[role][1]) for role in sorted(found)}

    @property
    def has_experts(self) -> bool:
        """Whether routed experts were found in it."""
        return any(counted.place.role == "expert" for counted in self.groups)


def count_groups(placed: Iterable[tuple[Group, Place]], stored: StoredWeights) -> Sequence[Counted]:
    """The parameters of each group."""
    counted = []
    for group, place in placed:
        packing = stored.packing(group) if place.counts else None
        elements = packing.logical(group.elements) if packing else group.elements
        shape = packing.shape(group.shape) if packing else ()
        counted.append(
            Counted(group, place, elements if place.counts else 0, packing.reason if packing else "", shape)
        )
    return counted


def totals(counted: Sequence[Counted], shards: int) -> Totals:
    """Exact totals; routed experts without those of multi-token prediction, vision with its projector."""
    logical = sum(item.params for item in counted)
    mtp = sum(item.params for item in counted if item.place.part == "mtp")
    return Totals(
        tensors=sum(item.group.count for item in counted),
        shards=shards,
        data_bytes=sum(item.group.bytes for item in counted),
        logical_params=logical,
        aux_elements=sum(item.group.elements for item in counted if not item.place.counts),
        mtp_params=mtp,
        vision_params=sum(item.params for item in counted if item.place.part in ("vision", "projector")),
        routed_expert_params=sum(item.params for item in counted if item.place.role == "expert"),
        main_params=logical - mtp,
    )


def active_params(
    counted: Sequence[Counted], experts: int, top_k: int, head_is_embedding: bool
) -> ActiveParams:
    """Active parameters of the text model.

    Args:
        counted: all groups.
        experts: routed experts a layer; 0 where there are none.
        top_k: of them chosen for a token; 0, or more than there are, counts every expert as active.
        head_is_embedding: whether the embedding's matrix also is the head. It then counts once, and leaving
            the embedding out still leaves it in as the head, which is what its multiplications cost.
    """
    sums = {"expert": 0, "embedding": 0, "head": 0, "other": 0}
    for item in counted:
        if item.place.part == "text":
            role = item.place.role
            sums[role if role in sums else "other"] += item.params
    routed = sums["expert"] * min(top_k, experts) // experts if experts and top_k else sums["expert"]
    body = sums["other"] + routed
    head = sums["embedding"] if head_is_embedding and not sums["head"] else sums["head"]
    embedding = 0 if head_is_embedding else sums["embedding"]
    return ActiveParams(
        with_embedding_and_head=body + head + embedding,
        without_embedding=body + head,
        without_embedding_and_head=body,
    )


def role_sizes(counted: Iterable[Counted]) -> Mapping[str, RoleSize]:
    """Role -> parameters, bytes and stored dtypes; side tensors under `aux` and `buffer`."""
    dtypes: dict[str, dict[str, list[int]]] = {}
    params: dict[str, int] = {}
    for item in counted:
        role = item.place.role
        params[role] = params.get(role, 0) + item.params
        size = dtypes.setdefault(role, {}).setdefault(item.group.dtype, [0, 0])
        size[0] += item.group.elements
        size[1] += item.group.bytes
    return {
        role: RoleSize(
            params=params[role],
            bytes=sum(size[1] for size in dtypes[role].values()),
            dtypes={
                dtype: Size(elements=elements, bytes=size)
                for dtype, (elements, size) in sorted(dtypes[role].items())
            },
        )
        for role in sorted(dtypes)
    }


def text_layers(counted: Iterable[Counted]) -> Sequence[LayerCount]:
    """The text model's layers, stack by stack in the order of their names, by index within."""
    found: dict[tuple[str, int], list[Counted]] = {}
    for item in counted:
        if item.place.part == "text" and item.group.layer is not None:
            found.setdefault((item.group.pattern.stack, item.group.layer), []).append(item)
    return [
        LayerCount(f"{stack}.{index}", index, tuple(found[stack, index])) for stack, index in sorted(found)
    ]


def main_stack(layers: Sequence[LayerCount]) -> Sequence[LayerCount]:
    """The layers of the deepest stack; of two equally deep ones the decoder."""
    stacks: dict[str, list[LayerCount]] = {}
    for layer in layers:
        stacks.setdefault(layer.name.rpartition(".")[0], []).append(layer)
    return max(stacks.values(), key=lambda stack: (len(stack), "encoder" not in stack[0].name), default=[])


def pattern_table(counted: Iterable[Counted]) -> Sequence[TensorPattern]:
    """One row for each pattern, dtype and shape, with exact index sets, in the order of the checkpoint."""
    rows: dict[tuple[str, str, tuple[int, ...], str, str], list[Counted]] = {}
    for item in counted:
        group, place = item.group, item.place
        key = (group.pattern.text, group.dtype, group.shape, place.role, place.part)
        rows.setdefault(key, []).append(item)
    return [_pattern_row(items) for items in rows.values()]


def _pattern_row(items: Sequence[Counted]) -> TensorPattern:
    group, place = items[0].group, items[0].place
    columns = zip(*(item.group.others.index_sets for item in items), strict=True)
    slots = [format_indices(set().union(*column)) for column in columns]
    return TensorPattern(
        pattern=group.pattern.text,
        layers=format_indices(item.group.layer for item in items if item.group.layer is not None),
        others=slots,
        role=place.role,
        owner=place.owner,
        part=place.part,
        dtype=group.dtype,
        shape=group.shape,
        tensors=sum(item.group.count for item in items),
        params=sum(item.params for item in items),
        bytes=sum(item.group.bytes for item in items),
        packing=items[0].packing,
        logical_shape=items[0].logical,
    )
