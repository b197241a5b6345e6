"""Counts of a release: totals, active parameters, tensors folded into patterns."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Value


class Totals(Value):
    """Exact totals; `main_params` is logical minus multi-token prediction, vision included."""

    tensors: int
    shards: int
    data_bytes: int
    logical_params: int
    aux_elements: int
    mtp_params: int
    vision_params: int
    routed_expert_params: int
    main_params: int


class ActiveParams(Value):
    """Active parameters by three conventions: text only, routed experts times top-k over their number."""

    with_embedding_and_head: int
    without_embedding: int
    without_embedding_and_head: int


class TensorPattern(Value):
    """The tensors whose names differ only in their indices, of one dtype and shape.

    Attributes:
        pattern: with `{l}` for the layer, `{e}` for the expert, `{i}` for any other index.
        layers: exact set of layer indices, e.g. `0-20,22-25`; empty where the pattern has none.
        others: exact set of each other placeholder's indices, in their order.
        role: word of the design's vocabulary.
        owner: for a side tensor the role of the weight that it serves, else the role.
        part: `text`, `mtp`, `vision`, `projector` or `audio`.
        dtype: as stored.
        shape: of one tensor, as stored.
        tensors: how many.
        params: logical parameters of all of them; 0 for side tensors and buffers.
        bytes: of all of them.
        packing: how more than one weight is kept in an element; empty where each element is one.
        logical_shape: of one tensor unpacked, outputs first; empty where nothing is packed, or where the
            header does not show it.
    """

    pattern: str
    layers: str
    others: Sequence[str]
    role: str
    owner: str
    part: str
    dtype: str
    shape: Sequence[int]
    tensors: int
    params: int
    bytes: int
    packing: str = ""
    logical_shape: Sequence[int] = ()
