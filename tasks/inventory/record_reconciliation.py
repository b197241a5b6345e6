"""What files, index, headers and config say of each tensor, and whether the release is all there."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Value

from .record_counts import ActiveParams, TensorPattern, Totals


class TreeEvidence(Value):
    """What the listing of the release says.

    Attributes:
        files: all of them.
        shards: canonical tensor files.
        bytes: of the canonical tensor files, as listed.
        hashed: how many of them the source gives a sha256 for.
    """

    files: int = 0
    shards: int = 0
    bytes: int = 0
    hashed: int = 0


class IndexEvidence(Value):
    """What the index says.

    Attributes:
        path: of the index; empty where none could be used.
        tensors: that it places.
        shards: that it names.
        total_size: as it states it; 0 where it states no integer.
        total_size_is: `tensor_bytes`, `file_bytes`, `neither`, `zero`, `absent`, `not_a_number`, or
            `unchecked` where tensors are missing.
    """

    path: str = ""
    tensors: int = 0
    shards: int = 0
    total_size: int = 0
    total_size_is: str = "absent"


class HeaderEvidence(Value):
    """What the headers say.

    Attributes:
        files: whose headers could be used.
        tensors: that they declare, each name once.
        bytes: of these tensors.
    """

    files: int = 0
    tensors: int = 0
    bytes: int = 0


class ConfigEvidence(Value):
    """What the config implies.

    Attributes:
        status: `unverified` (nothing could be held against it), `arithmetic` (layers, experts and shapes by
            its numbers), `checked` (every tensor by the model that it builds).
        by: what worked it out.
        missing: tensors that it implies and nothing holds.
        unexpected: tensors that are held and that it does not imply.
        misshapen: tensors whose shape is not the one that it implies, or that its numbers give.
        layers_off: layers that it states and that are not stored, or the other way round.
        ignored: tensors that the model's own class says it ignores, such as those of multi-token prediction.
    """

    status: str = "unverified"
    by: str = ""
    missing: int = 0
    unexpected: int = 0
    misshapen: int = 0
    layers_off: int = 0
    ignored: int = 0


class ExceptionRow(Value):
    """Tensors of one pattern about which the four disagree in the same way.

    Attributes:
        verdict: `index_only`, `header_only`, `wrong_shard`, `duplicate`, `missing_shard`,
            `unreadable_shard`, `cut_off`, `expected_missing`, `unexpected` or `misshapen`.
        pattern: of their names, with `{l}`, `{e}` and `{i}` for indices.
        layers: exact set of layer indices; empty where the pattern has none.
        experts: exact set of expert indices; empty where the pattern has none.
        others: exact set of each other placeholder's indices, in their order.
        tensors: how many.
        whole: whether they are exactly the product of these sets; else some combinations are not affected.
        files: that hold them, or that should; at most `MAX_FILES`.
        more_files: how many there are beyond those listed.
        example: the first name.
        code: of the finding.
    """

    verdict: str
    pattern: str
    layers: str = ""
    experts: str = ""
    others: Sequence[str] = ()
    tensors: int
    whole: bool = True
    files: Sequence[str] = ()
    more_files: int = 0
    example: str
    code: str


class Reconciliation(Value):
    """Files, index, headers and config held against each other.

    Attributes:
        consistent: tensors about which all that was looked at agrees.
        faulty: tensors with an exception, each counted once.
        exceptions: everything else, folded.
        tree: by the listing.
        index: by the index.
        headers: by the headers.
        config: by the config.
    """

    consistent: int = 0
    faulty: int = 0
    exceptions: Sequence[ExceptionRow] = ()
    tree: TreeEvidence = TreeEvidence()
    index: IndexEvidence = IndexEvidence()
    headers: HeaderEvidence = HeaderEvidence()
    config: ConfigEvidence = ConfigEvidence()


class Readiness(Value):
    """Whether the release is all there.

    Attributes:
        state: `complete`, `arriving` (files that are announced are not there yet, what is there is sound),
            `listing_only` (files are listed and cannot be read), `config_only`, `no_config` (weights alone),
            `partly_read` (some tensor files could not be read from here, the others are sound), `broken`.
        reasons: what shows it.
        awaited: files that are announced and not there, at most `MAX_FILES`.
        more_awaited: how many there are beyond those listed.
        bytes_there: of the canonical tensor files that are there.
        partial: whether the counts are of a part of the announced tensors alone.
    """

    state: str = "complete"
    reasons: Sequence[str] = ()
    awaited: Sequence[str] = ()
    more_awaited: int = 0
    bytes_there: int = 0
    partial: bool = False


class RedundantSet(Value):
    """Weights beside the canonical set.

    Attributes:
        kind: `original`, `metal`, `consolidated`, `gguf`, `pickle`, `onnx`, `variant` (the same in another
            precision), `adapter`, `component` (another model of a pipeline: not redundant) or `other`.
        name: folder and stem that its files share.
        files: how many.
        bytes: of all of them.
        redundant: whether the release is whole without it.
        same_as_canonical: `true` (same hashes), `false`, or `unknown`.
        examples: of its files, at most five.
    """

    kind: str
    name: str
    files: int
    bytes: int
    redundant: bool
    same_as_canonical: str = "unknown"
    examples: Sequence[str] = ()


class ImpliedOperator(Value):
    """An operator that the model calls.

    Attributes:
        op: e.g. `aten.mm.default`.
        phases: in which it is called.
        calls: over the whole model and all of these phases.
    """

    op: str
    phases: Sequence[str]
    calls: int


class Implied(Value):
    """What the config implies without the weights, by a worker that runs no code of the repository.

    Attributes:
        status: `unverified` (see `reason`) or `computed`.
        by: e.g. `transformers 5.24.0`.
        reason: why nothing is known; empty where it is.
        architecture: class that was built.
        totals: as those of the facts, for the tensors that the config implies; bytes as it declares them.
        active_params: three conventions.
        patterns: the tensors, folded.
        operators: by falling number of calls.
        unknown_phases: phases whose operators could not be captured, with the reason.
        plain_bytes: of the same tensors without quantisation.
        left_out: what the config declares and the class does not build, such as multi-token prediction.
    """

    status: str = "unverified"
    by: str = ""
    reason: str = "not asked for"
    architecture: str = ""
    totals: Totals | None = None
    active_params: ActiveParams | None = None
    patterns: Sequence[TensorPattern] = ()
    operators: Sequence[ImpliedOperator] = ()
    unknown_phases: Sequence[str] = ()
    plain_bytes: int = 0
    left_out: Sequence[str] = ()


MAX_FILES = 20  # files that a person reads in one row; the rest is counted
