"""What inventory hands on: what the release is, counted from headers and config alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.values import Size, Value

from ..record import StageRecord
from .record_counts import ActiveParams as ActiveParams
from .record_counts import TensorPattern as TensorPattern
from .record_counts import Totals as Totals
from .record_distribution import Distribution
from .record_quantization import Quantization as Quantization
from .record_reconciliation import Implied, Readiness, Reconciliation, RedundantSet
from .record_structure import PrecisionNeed, Structure, Tokenizer, TransformersSupport
from .record_trust import Code, PickleFile, Provenance, SmallFile
from .record_verification import Verification

STAGE = "inventory"
STAGE_VERSION = 4


class Identity(Value):
    """Which release, exactly.

    Attributes:
        model: as the person named it.
        revision: pinned commit, or a digest for a folder or bare config.
        config_digest: of config.json.
        structure_digest: of config.json and every tensor's name, dtype and shape.
        weights_digest: over the identities of all tensors.
    """

    model: str
    revision: str
    config_digest: str
    structure_digest: str
    weights_digest: str


class Layer(Value):
    """One layer of the text model.

    Attributes:
        name: module path, e.g. `model.layers.3`.
        index: position.
        kind: attention word, e.g. `full`, `sliding`, `mla`, `linear`, `state_space`.
        feed_forward: `dense` or `moe`.
        params: logical parameters.
        bytes: as stored, side tensors included.
        kv_bytes_per_token: bf16, before any window is full.
        window: tokens after which the KV cache stops growing; 0: never.
        state_bytes_per_sequence: bf16 bytes that do not grow with length.
        roles: role -> parameters and bytes, side tensors with the weights that they serve.
    """

    name: str
    index: int
    kind: str
    feed_forward: str
    params: int
    bytes: int
    kv_bytes_per_token: int
    window: int = 0
    state_bytes_per_sequence: int = 0
    roles: Mapping[str, Size] = {}


class RoleSize(Value):
    """Parameters and bytes of one role over the whole model, by stored dtype."""

    params: int
    bytes: int
    dtypes: Mapping[str, Size]


class TiedEmbeddings(Value):
    """Whether embedding and head share a tensor: by the config, by the tensors (None: cannot tell).

    Attributes:
        config: by the config.
        tensors: whether no head of its own is stored.
        compared: `identical`, `different` or `unverified` where both are stored; else empty.
    """

    config: bool | None
    tensors: bool | None
    compared: str = ""


class Architecture(Value):
    """What the config says, in one vocabulary; 0 or empty where it does not say."""

    architecture: str = ""
    model_type: str = ""
    dtype: str = ""
    hidden_size: int = 0
    intermediate_size: int = 0
    moe_intermediate_size: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    max_positions: int = 0
    sliding_window: int = 0
    experts: int = 0
    shared_experts: int = 0
    top_k: int = 0
    position: str = ""
    activation: str = ""
    norm_eps: float = 0.0
    custom_code: Sequence[str] = ()


class Shard(Value):
    """One canonical tensor file.

    Attributes:
        path: in the release.
        size: bytes.
        tensors: that its header names.
        dtypes: of them.
        content: the hash by which the source vouches for it, `sha256:...` or `git:...`; empty for none.
    """

    path: str
    size: int
    tensors: int
    dtypes: Sequence[str]
    content: str = ""


class InventoryFacts(Value):
    """Everything inventory knows for certain.

    Attributes:
        identity: which release.
        format: `safetensors`, `gguf`, `pickle` or `none`.
        basis: what totals, active parameters, layers and roles are counted from: `headers`, `implied`
            (nothing is stored: what the config implies, bytes as it declares them) or `none` (they are
            unknown, not 0).
        totals: exact counts.
        active_params: three conventions.
        kv_bytes_per_token: bf16, all layers, before any window is full.
        kv_bytes_per_token_growing: bf16, the layers that never stop growing.
        kv_window_bytes: window length in tokens -> bf16 bytes per token of the layers with that window.
        state_bytes_per_sequence: bf16 bytes that do not grow with length.
        layers: of the text model, in order.
        roles: role -> size.
        quantization: normal form.
        tied_embeddings: config against tensors.
        architecture: config facts.
        config: config.json as parsed.
        shards: canonical tensor files.
        patterns: every tensor, folded by name, dtype and shape.
        header_bytes_total: bytes of all headers.
        unknown_tensors: patterns of names that no role was found for.
        tokenizer: files, vocabulary, special tokens, chat templates; None for a bare config.
        structure: norms, activation, positions, attention, routing, pattern of layers, dtype.
        precision: patterns whose numbers a stack must not round.
        transformers: which release of it knows the model type.
        code: of the release, read as text.
        pickles: listed by their opcodes, never loaded.
        provenance: licence, gating, lineage.
        small_files: beside the weights, with the hash of what they hold.
        reconciliation: files, index, headers and config held against each other.
        readiness: whether the release is all there.
        redundant: weights beside the canonical set.
        bytes_saved: of those that nobody needs.
        implied: what the config implies without the weights.
        distribution: layer by role and rank by rank; None in records made by hand.
        verification: what reading every byte showed; None where nobody asked for it: unverified.
    """

    identity: Identity
    format: str
    basis: str = "headers"
    totals: Totals
    active_params: ActiveParams
    kv_bytes_per_token: int
    kv_bytes_per_token_growing: int
    kv_window_bytes: Mapping[int, int] = {}
    state_bytes_per_sequence: int
    layers: Sequence[Layer]
    roles: Mapping[str, RoleSize]
    quantization: Quantization
    tied_embeddings: TiedEmbeddings
    architecture: Architecture
    config: Mapping[str, Any]
    shards: Sequence[Shard]
    patterns: Sequence[TensorPattern] = ()
    header_bytes_total: int
    unknown_tensors: Sequence[str] = ()
    tokenizer: Tokenizer | None = None
    structure: Structure = Structure()
    precision: Sequence[PrecisionNeed] = ()
    transformers: TransformersSupport = TransformersSupport()
    code: Code = Code()
    pickles: Sequence[PickleFile] = ()
    provenance: Provenance = Provenance()
    small_files: Sequence[SmallFile] = ()
    reconciliation: Reconciliation = Reconciliation()
    readiness: Readiness = Readiness()
    redundant: Sequence[RedundantSet] = ()
    bytes_saved: int = 0
    implied: Implied = Implied()
    distribution: Distribution | None = None
    verification: Verification | None = None


class InventoryObservations(Value):
    """Times of the reading; bytes and seconds of `--verify`, as far as they were read by this run."""

    seconds: float = 0.0
    verified_bytes: int = 0
    verify_seconds: float = 0.0


class InventoryRecord(StageRecord):
    """The inventory stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: InventoryFacts
    observations: InventoryObservations = InventoryObservations()
