"""What the minimal run hands on: what loads and what executes with the real weights."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Fingerprint, Value
from day0.adapters.base.workaround import Chosen

from ..record import StageRecord

STAGE = "minimal"
STAGE_VERSION = 2


class NodeRunFact(Value):
    """One node, run once in one phase.

    Attributes:
        name: node name.
        kind: its kind.
        role: its role.
        phase: `prefill` or `decode`.
        outcome: `ran`, or the class of failure: `missing_operator`, `dtype`, `shape`, `key_mismatch`,
            `memory`, `crash`, `hang`, `import`, `unsupported`, `nonfinite`, `runtime`, `not_run`.
        detail: the error in one line, empty where it ran.
    """

    name: str
    kind: str
    role: str
    phase: str
    outcome: str
    detail: str = ""


class LoadFact(Value):
    """What the target's own loader said of the cut-down release.

    Attributes:
        outcome: `loaded`, or the class of failure as for nodes.
        missing: parameters the model has and the checkpoint lacks.
        unexpected: tensors the checkpoint has and the model lacks.
        mismatched: shapes that differ.
        detail: the error in one line, empty where it loaded.
    """

    outcome: str
    missing: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    mismatched: Sequence[str] = ()
    detail: str = ""


class CutRelease(Value):
    """The cut-down release in HF format.

    Attributes:
        layers: original indices of the layers kept.
        tensors: number of tensors.
        bytes: of their data.
        config_changes: config keys that differ from the release, as `key: old -> new`.
    """

    layers: Sequence[int]
    tensors: int
    bytes: int
    config_changes: Sequence[str]


class MinimalFacts(Value):
    """What ran.

    Attributes:
        fingerprint: of the target.
        tokens: the batch that was run, token ids.
        nodes: each node tried, in order, per phase.
        cut: the cut-down release; None where it could not be written.
        load: what the loader said; None where it was not asked.
        generated: tokens the loaded cut-down release gave; None where it did not generate.
        chosen: ways around that coverage chose, with which all of it ran.
    """

    fingerprint: Fingerprint
    tokens: Sequence[Sequence[int]]
    nodes: Sequence[NodeRunFact]
    cut: CutRelease | None = None
    load: LoadFact | None = None
    generated: Sequence[Sequence[int]] | None = None
    chosen: Sequence[Chosen] = ()


class MinimalObservations(Value):
    """What the run took."""

    seconds: float = 0.0
    load_seconds: float = 0.0
    peak_bytes: int = 0
    worker_log: Sequence[str] = ()


class MinimalRecord(StageRecord):
    """The minimal run's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: MinimalFacts
    observations: MinimalObservations = MinimalObservations()
