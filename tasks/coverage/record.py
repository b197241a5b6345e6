"""What coverage hands on: which operators the model needs, what the target makes of each, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.operator_capture import FunctionCall, Kernel
from day0.adapters.base.values import Fingerprint, Number, Value
from day0.adapters.base.workaround import Chosen

from ..record import StageRecord
from .record_kinds import KindCompile, KindSeconds, KindShapes

STAGE = "coverage"
STAGE_VERSION = 3


class CoveredOp(Value):
    """One operator with its dtype tuple and the attributes that choose an implementation.

    Attributes:
        op: operator name.
        dtypes: dtype tuple of its tensor arguments.
        variant: attributes that choose another implementation (`enable_gqa`), empty for none.
        attributes: of the call that was tried, by the schema's names.
        status: word of the design's vocabulary (`native`, `missing`, `wrong`, `unknown`, ...).
        grade: `measured` or `inherited`, `declared` where only a support list speaks; empty where nothing
            is known.
        evidence: what shows it: probe id, error, log line.
        layer: of the stack that is at fault, empty where none is.
        owner: who keeps that layer, empty where none is at fault.
        workaround: id of the smallest way around, or empty.
        impact: share of the work of one token, prefill and decode alike, in [0, 1].
        calls: over the whole model and all phases.
        phases: in which it is called.
        module: first module path that calls it.
        modules: all of them, where more than one does.
        signatures: distinct shapes and attributes.
    """

    op: str
    dtypes: Sequence[str]
    variant: str = ""
    attributes: Mapping[str, Any] = {}
    status: str
    grade: str
    evidence: str
    layer: str = ""
    owner: str = ""
    workaround: str = ""
    impact: float
    calls: int
    phases: Sequence[str]
    module: str
    modules: Sequence[str] = ()
    signatures: int


class Gap(Value):
    """One operator that the target does not run by itself as it should, with what to do.

    Attributes:
        id: stable name: digest of operator, dtypes and variant.
        op: operator name.
        dtypes: dtype tuple of its tensor arguments.
        variant: attributes that choose another implementation.
        status: word of the design's vocabulary.
        impact: share of the work of one token in [0, 1].
        layer: of the stack that is at fault.
        owner: who keeps that layer.
        launches: operators that the way around runs for one call, beyond the one; 0 where none is known.
        bytes_per_call: that cross between device and host for one call, where it falls back; else 0.
        leaves: operator -> how often one call runs it, where it can be rebuilt from others.
        workaround: id of the smallest way around, or empty.
        checked: how the way around was tried on the target, empty where it was not.
        error: deviation from the fp64 reference on the way around; None where it was not compared.
        evidence: what shows the gap.
        repro: a script that shows it alone, as text; empty where no call can be made.
        letter: a text for the owner.
    """

    id: str = ""
    op: str
    dtypes: Sequence[str]
    variant: str = ""
    status: str
    impact: float
    layer: str = ""
    owner: str = ""
    launches: int = 0
    bytes_per_call: int = 0
    leaves: Mapping[str, int] = {}
    workaround: str
    checked: str = ""
    error: Number | None = None
    evidence: str
    repro: str = ""
    letter: str = ""


class Alternative(Value):
    """One combination of the model's own implementations and what it leaves open on the target.

    Attributes:
        options: of the target: `attn`, `experts`; empty for the target as named.
        operators: distinct operators.
        gaps: names of those that the target does not run, by falling share of the work.
        rebuilt: names of those that it runs only rebuilt from others.
        unknown: names of those that nobody has tried.
        impact: work at risk, gaps and unknown ones together, as a share of what the target as named does; the
            combination with the least is chosen, of equals the one with the fewest operators at risk.
        chosen: whether it is the one with the smallest gap.
        checked: how it was tried on the target, empty where it was not.
        reason: why it could not be captured, empty where it could.
    """

    options: Mapping[str, str]
    operators: int = 0
    gaps: Sequence[str] = ()
    rebuilt: Sequence[str] = ()
    unknown: Sequence[str] = ()
    impact: float = 0.0
    chosen: bool = False
    checked: str = ""
    reason: str = ""


class CoverageFacts(Value):
    """The diff between what the model calls and what the target has.

    Attributes:
        fingerprint: of the target the rows hold for.
        config_digest: of the config that was captured.
        overloads: number of distinct operators.
        signatures: number of distinct operator calls.
        statuses: status -> number of operators.
        ops: every operator with its dtype tuple.
        gaps: those that are not `native`, the largest share of the work first.
        new_since_registry: `OP(DTYPES)` that the registry had no row for before this run.
        kernels: kernels outside the dispatcher that the model asks for.
        functions: points at which implementations switch, as the model's code calls them.
        kinds: one node of each kind, compiled and run with what was chosen.
        dynamic: one node of each kind in other sizes than it was compiled for.
        alternatives: combinations of the model's own implementations, the target as named first.
        chosen: what the later stages run with.
    """

    fingerprint: Fingerprint
    config_digest: str
    overloads: int
    signatures: int
    statuses: Mapping[str, int]
    ops: Sequence[CoveredOp]
    gaps: Sequence[Gap]
    new_since_registry: Sequence[str] = ()
    kernels: Sequence[Kernel] = ()
    functions: Sequence[FunctionCall] = ()
    kinds: Sequence[KindCompile] = ()
    dynamic: Sequence[KindShapes] = ()
    alternatives: Sequence[Alternative] = ()
    chosen: Sequence[Chosen] = ()


class CoverageObservations(Value):
    """What the measuring took.

    Attributes:
        capture_seconds: until the calls were there, captured or read.
        probe_seconds: spent on trying operators.
        probed: rows tried.
        kinds: what each kind took, when it was compiled.
        spent: whether the time for trying was used up, or too short for rows that are right so far: then the
            next run has something to try.
    """

    capture_seconds: float = 0.0
    probe_seconds: float = 0.0
    probed: int = 0
    kinds: Sequence[KindSeconds] = ()
    spent: bool = False


class CoverageRecord(StageRecord):
    """The coverage stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: CoverageFacts
    observations: CoverageObservations = CoverageObservations()
