"""What coverage hands on: which operators the model needs and what the target makes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Fingerprint, Value

from ..record import StageRecord

STAGE = "coverage"
STAGE_VERSION = 1


class CoveredOp(Value):
    """One operator with its dtype tuple, and what the target makes of it.

    Attributes:
        op: operator name.
        dtypes: dtype tuple of its tensor arguments.
        status: word of the design's vocabulary (`native`, `missing`, `wrong`, `unknown`, ...).
        grade: `measured`, `inherited` or `declared`; empty where the status is `unknown`.
        evidence: what shows it: probe id, error, log line.
        workaround: id of the smallest way around, or empty.
        impact: share of the work (bytes moved plus FLOPs, over the whole model) in [0, 1].
        calls: over the whole model and all phases.
        phases: in which it is called.
        module: first module path that calls it.
        signatures: distinct shapes and attributes.
    """

    op: str
    dtypes: Sequence[str]
    status: str
    grade: str
    evidence: str
    workaround: str = ""
    impact: float
    calls: int
    phases: Sequence[str]
    module: str
    signatures: int


class Gap(Value):
    """One operator at risk, ranked by impact, with what to do."""

    op: str
    dtypes: Sequence[str]
    status: str
    impact: float
    workaround: str
    evidence: str


class CoverageFacts(Value):
    """The diff between what the model calls and what the target has.

    Attributes:
        fingerprint: of the target the rows hold for.
        config_digest: of the config that was captured.
        overloads: number of distinct operators.
        signatures: number of distinct operator calls.
        statuses: status -> number of operators.
        ops: every operator with its dtype tuple.
        gaps: those not `native` or `decomposed`, worst first.
        new_since_registry: operators that the registry had no row for before this run.
        kernels: kernels outside the dispatcher that the model asks for.
    """

    fingerprint: Fingerprint
    config_digest: str
    overloads: int
    signatures: int
    statuses: Mapping[str, int]
    ops: Sequence[CoveredOp]
    gaps: Sequence[Gap]
    new_since_registry: Sequence[str] = ()
    kernels: Sequence[str] = ()


class CoverageObservations(Value):
    """What the measuring took."""

    capture_seconds: float = 0.0
    probe_seconds: float = 0.0
    probed: int = 0
    worker_log: str = ""


class CoverageRecord(StageRecord):
    """The coverage stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: CoverageFacts
    observations: CoverageObservations = CoverageObservations()
