"""What numerics hands on: how far each node of the target is from the reference."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Fingerprint, Number, Value
from day0.adapters.base.workaround import Chosen

from ..record import StageRecord
from .record_parts import (
    ImageFeatures,
    Manifest,
    Metrics,
    Precision,
    ReferenceCheck,
    Routing,
    SelfTest,
    TaskMetric,
    Training,
)

__all__ = [
    "Block",
    "FirstFault",
    "Logits",
    "Metrics",
    "NumericsFacts",
    "NumericsObservations",
    "NumericsRecord",
    "PromptResult",
    "Says",
]

STAGE = "numerics"
STAGE_VERSION = 7


class Block(Value):
    """One node compared.

    Attributes:
        name: node name.
        role: its role.
        local: on the reference's input; None where it could not be run.
        propagated: on the target's own stream; None where it could not be run.
        growth: propagated error out over propagated error in.
        verdict: `pass`, `fail`, `inherited` (off only by what it received) or `unverified`.
        reason: which measure is beyond which tolerance, or why it was not compared.
        signature: digest of the target's local output; names the first node that changed between two runs.
        largest: largest magnitude of the oracle's output.
        headroom: largest over the largest number of the target's dtype; towards 1 an overflow is near.
        band: relative L2 between two runs of the target on the same input; NaN where it ran once.
        bit_stable: whether those two runs agree to the last bit; None where it ran once.
    """

    name: str
    role: str
    local: Metrics | None
    propagated: Metrics | None
    growth: Number
    verdict: str
    reason: str = ""
    signature: str = ""
    largest: Number = "NaN"
    headroom: Number = "NaN"
    band: Number = "NaN"
    bit_stable: bool | None = None


class FirstFault(Value):
    """The first node that is wrong by itself.

    Attributes:
        block: its name.
        metric: measure furthest beyond its tolerance; `crash`, `shape`, `dtype` or another class of failure
            where the target gave nothing that could be compared.
        value: of the measure; NaN for a failure.
        tolerance: that it exceeds; NaN for a failure.
        fragment: innermost module in it that is wrong on the reference's input; empty where none is found.
        op: first operator in that fragment beyond noise; empty where none is found.
        detail: how the search went, in a sentence.
        repro: a script that shows the operator alone again or, where none does, compares the nodes again;
            empty where neither can.
    """

    block: str
    metric: str
    value: Number
    tolerance: Number
    fragment: str = ""
    op: str = ""
    detail: str = ""
    repro: str = ""


NOT_ASKED = "not asked for"
"""Why a prompt did not run that the flags left out."""


class PromptResult(Value):
    """Agreement at the output on one prompt of the set.

    Attributes:
        name: of the prompt.
        purpose: what it can show that the others cannot.
        tokens: compared, padding not counted; 0 where it did not run.
        kl: nats per position.
        top1: share of positions.
        top5: share.
        decisive: positions.
        worst_block: node with the largest local ratio on it that is beyond tolerance, else empty.
        reason: why it did not run, else empty.
    """

    name: str
    purpose: str = ""
    tokens: int = 0
    kl: Number = "NaN"
    top1: Number = "NaN"
    top5: Number = "NaN"
    decisive: int = 0
    worst_block: str = ""
    reason: str = ""


class Logits(Value):
    """Agreement at the output.

    Attributes:
        top1: share of positions whose most likely token is the same.
        top5: mean overlap of the five most likely tokens.
        kl: mean Kullback-Leibler divergence of the target from the reference, nats.
        decisive: positions where the choice differs although the reference's margin exceeds the noise.
        positions: number of positions compared.
        prompts: the same for each prompt.
    """

    top1: Number
    top5: Number
    kl: Number
    decisive: int
    positions: int
    prompts: Sequence[PromptResult] = ()


class Says(Value):
    """What reference and target continue a prompt with."""

    prompt: str
    reference: str
    target: str
    agree: bool


class NumericsFacts(Value):
    """The comparison.

    Attributes:
        fingerprint: of the target.
        reference: what the numbers are held against, e.g. `transformers 5.24.0 eager cpu fp32`.
        noise: what the noise arm was, e.g. `reference in bf16`.
        tokens: number of tokens compared.
        blocks: every node, in order.
        first_fault: None where no node is beyond tolerance.
        logits: None where the head could not be compared.
        says: None where no tokenizer was found.
        bytes_read: of weights.
        chosen: ways around that coverage chose, with which the target ran.
        routing: every router, in order; empty for a dense model.
        decode: agreement in steps with a KV cache; None where it did not run.
        reference_check: whether the reference itself can be trusted.
        task: None where none was asked for.
        self_test: None where it was not asked for.
        precision: None where it was not asked for.
        training: None where it was not asked for.
        manifest: what was to be captured and what was.
        images: features of images; None where the model takes none. Nodes of tower and projector stand among
            `blocks`, before those of the text.
    """

    fingerprint: Fingerprint
    reference: str
    noise: str
    tokens: int
    blocks: Sequence[Block]
    first_fault: FirstFault | None
    logits: Logits | None
    says: Says | None = None
    bytes_read: int = 0
    chosen: Sequence[Chosen] = ()
    routing: Sequence[Routing] = ()
    decode: Logits | None = None
    reference_check: ReferenceCheck = ReferenceCheck()
    task: TaskMetric | None = None
    self_test: SelfTest | None = None
    precision: Precision | None = None
    training: Training | None = None
    manifest: Manifest = Manifest()
    images: ImageFeatures | None = None


class NumericsObservations(Value):
    """What the comparison took.

    Attributes:
        seconds: of the whole.
        reference_seconds: in reference and noise arm.
        target_seconds: that the target spent executing, by its own clock.
        peak_bytes: highest that any answer of the target named.
        peak_memory: highest memory of this process and all workers together, PSS, as sampled.
        memory_bound: that was asked for.
        nodes_reused: calls whose answers came from the store.
        worker_log: the worker's last lines.
    """

    seconds: float = 0.0
    reference_seconds: float = 0.0
    target_seconds: float = 0.0
    peak_bytes: int = 0
    peak_memory: int = 0
    memory_bound: int = 0
    nodes_reused: int = 0
    worker_log: Sequence[str] = ()


class NumericsRecord(StageRecord):
    """The numerics stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: NumericsFacts
    observations: NumericsObservations = NumericsObservations()
