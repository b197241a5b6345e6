"""All tensors as pieces, one a layer and pattern: by headers, or by what a bare config implies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .counts import Counted


@dataclass(frozen=True)
class Piece:
    """The tensors of one pattern, dtype and shape in one layer.

    Attributes:
        name: module path of the layer; empty outside the layers.
        index: of the layer; None outside.
        part: `text`, `mtp`, `vision`, `projector` or `audio`.
        role: of the tensors themselves.
        owner: for side tensors the role of the weight that they serve, else the role.
        pattern: of their names.
        dtype: as stored.
        shape: of each.
        count: how many.
        params: logical parameters of all of them.
        bytes: of all of them.
    """

    name: str
    index: int | None
    part: str
    role: str
    owner: str
    pattern: str
    dtype: str
    shape: Sequence[int]
    count: int
    params: int
    bytes: int


def pieces_of(counted: Sequence[Counted]) -> Sequence[Piece]:
    """As the headers hold them, or as a config implies them."""
    found = []
    for item in counted:
        group, place = item.group, item.place
        name = "" if group.layer is None else layer_path(group.pattern.stack, group.layer)
        found.append(
            Piece(
                name, group.layer, place.part, place.role, place.owner, group.pattern.text, group.dtype,
                group.shape, group.count, item.params, group.bytes,
            )
        )  # fmt: skip
    return found


def layer_path(stack: str, index: int) -> str:
    """The layer's module path; GGUF's `blk.3` under the name that every other room uses for it."""
    return f"model.layers.{index}" if stack == "blk" else f"{stack}.{index}"
