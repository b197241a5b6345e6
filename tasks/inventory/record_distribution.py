"""How parameters, bytes, state and traffic lie over a model: layer by role, and rank by rank of a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Value


class Share(Value):
    """One role in one layer, or one part outside the layers.

    Shapes are symbolic in `B` sequences, `T` tokens of each, `P` patches or frames of an image or sound.

    Attributes:
        part: `text`, `mtp`, `vision`, `projector` or `audio`.
        name: module path of the layer, e.g. `model.layers.3`, or of what lies outside the layers.
        index: of the layer; None outside the layers.
        kind: attention word of the layer; empty outside.
        feed_forward: `dense` or `moe`; empty outside.
        role: word of the design's vocabulary.
        tensors: stored, side tensors included.
        params: logical parameters.
        active_params: of them used for one token of text: routed experts times top-k over their number,
            everything else of the text model whole; 0 for what a plain text token does not pass.
        bytes: as stored, side tensors included.
        input: activation that enters, e.g. `[B, T, 7168]`.
        inner: what it becomes inside, e.g. `q [B, T, 128, 192], latent [B, T, 576]`; empty where nothing.
        output: activation that leaves.
        kv_bytes_per_token: bf16, before any window is full.
        window: tokens after which that stops growing; 0: never.
        state_bytes_per_sequence: bf16 bytes that do not grow with length.
        communication: `tp`, `sp`, `ep`, `pp` -> primitives that this role needs when the model is split so;
            their numbers stand in `Distribution.primitives`.
    """

    part: str
    name: str
    index: int | None = None
    kind: str = ""
    feed_forward: str = ""
    role: str
    tensors: int
    params: int
    active_params: int
    bytes: int
    input: str = ""
    inner: str = ""
    output: str = ""
    kv_bytes_per_token: int = 0
    window: int = 0
    state_bytes_per_sequence: int = 0
    communication: Mapping[str, Sequence[str]] = {}


class Primitive(Value):
    """One collective or transfer that a role needs in one direction of parallelism.

    Attributes:
        role: whose output or input is exchanged.
        parallel: `tp`, `sp`, `ep` or `pp`.
        primitive: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or `send/recv`.
        tensor: what is exchanged, e.g. `[B, T, 7168]`.
        payload_bytes_per_token: bytes of that tensor for one token, at two bytes an element.
        sent: part of the payload that each of p ranks sends with the usual algorithm, e.g. `2(p-1)/p`.
        why: which split makes it necessary.
    """

    role: str
    parallel: str
    primitive: str
    tensor: str
    payload_bytes_per_token: int
    sent: str
    why: str


class StageMemory(Value):
    """What the ranks of one pipeline stage hold.

    Attributes:
        stage: number, from 0.
        layers: exact set of positions in the stack of text layers.
        weights_bytes_min: on the emptiest rank, without multi-token prediction.
        weights_bytes_max: on the fullest rank.
        mtp_bytes: of multi-token prediction on the fullest rank, where an engine loads it.
        kv_bytes_per_token: bf16, per rank and token of a sequence that this rank's replica serves.
        state_bytes_per_sequence: bf16, per rank.
    """

    stage: int
    layers: str
    weights_bytes_min: int
    weights_bytes_max: int
    mtp_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_sequence: int


class LayoutMemory(Value):
    """Expected bytes per rank of one layout, before activations and what an engine holds back.

    Attributes:
        layout: the one way it is written, e.g. `tp=8,ep=8,pp=1,dp=1`.
        ranks: in all.
        possible: whether the model can be split so.
        reason: why not, with the arithmetic; empty where it can.
        notes: what is replicated or uneven.
        weights_bytes_min: on the emptiest rank of all stages, without multi-token prediction.
        weights_bytes_max: on the fullest rank.
        mtp_bytes_max: of multi-token prediction, on the last stage's fullest rank, where an engine loads it.
        kv_bytes_per_token_min: bf16, on the rank with the least.
        kv_bytes_per_token_max: on the rank with the most.
        state_bytes_per_sequence_max: bf16, on the rank with the most.
        sent_bytes_per_token: direction -> bytes that one rank sends in a forward pass for one token of its
            own replica, at two bytes an element, all layers together.
        stages: pipeline stage by pipeline stage.
    """

    layout: str
    ranks: int
    possible: bool
    reason: str = ""
    notes: Sequence[str] = ()
    weights_bytes_min: int = 0
    weights_bytes_max: int = 0
    mtp_bytes_max: int = 0
    kv_bytes_per_token_min: int = 0
    kv_bytes_per_token_max: int = 0
    state_bytes_per_sequence_max: int = 0
    sent_bytes_per_token: Mapping[str, int] = {}
    stages: Sequence[StageMemory] = ()


class Distribution(Value):
    """The parameter distribution of a release.

    Attributes:
        basis: `tensors`, `implied` (a config whose tensors follow from its class), or `config` (state and
            shapes alone: no tensor is known, parameters and bytes are 0).
        rows: every layer by role and every part outside the layers; none is folded.
        primitives: what splitting the model makes it exchange, once a role.
        memory: expected bytes per rank, a layout each.
    """

    basis: str
    rows: Sequence[Share] = ()
    primitives: Sequence[Primitive] = ()
    memory: Sequence[LayoutMemory] = ()
