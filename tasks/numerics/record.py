"""What numerics hands on: how far each node of the target is from the reference."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Fingerprint, Number, Value
from day0.adapters.base.workaround import Chosen

from ..record import StageRecord

STAGE = "numerics"
STAGE_VERSION = 2


class Metrics(Value):
    """Distance of one node's output from the reference's; formulas in `tasks/numerics/metrics.py`.

    Attributes:
        rel_l2: ||t - r|| / ||r||.
        cosine: between the flattened outputs.
        centred_cosine: the same about each side's mean.
        max_abs: largest absolute difference.
        worst_token: largest rel_l2 of any token.
        gain: mean over tokens of <t, r> / <r, r> - 1; of a routed node over the tokens that are no outliers.
        gain_score: how far gain lies outside of what zero and the noise arm's own gain span, in standard
            errors of the noise arm.
        ratio: rel_l2 over the noise arm's rel_l2.
        token_ratio: median of the tokens' rel_l2 over the noise arm's median.
        worst_ratio: worst_token over the noise arm's.
        outliers: tokens of a routed node that are too far off for rounding; near-ties that were routed
            otherwise.
        nonfinite: NaN and infinity in the target's output that the reference does not have.
    """

    rel_l2: Number
    cosine: Number
    centred_cosine: Number = "NaN"
    max_abs: Number
    worst_token: Number
    gain: Number
    gain_score: Number
    ratio: Number
    token_ratio: Number = "NaN"
    worst_ratio: Number = "NaN"
    outliers: int = 0
    nonfinite: int = 0


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
    """

    name: str
    role: str
    local: Metrics | None
    propagated: Metrics | None
    growth: Number
    verdict: str
    reason: str = ""
    signature: str = ""


class FirstFault(Value):
    """The first node beyond tolerance by itself."""

    block: str
    metric: str
    value: Number
    tolerance: Number


class Logits(Value):
    """Agreement at the output.

    Attributes:
        top1: share of positions whose most likely token is the same.
        top5: mean overlap of the five most likely tokens.
        kl: mean Kullback-Leibler divergence of the target from the reference, nats.
        decisive: positions where the choice differs although the reference's margin exceeds the noise.
        positions: number of positions compared.
    """

    top1: Number
    top5: Number
    kl: Number
    decisive: int
    positions: int


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


class NumericsObservations(Value):
    """What the comparison took."""

    seconds: float = 0.0
    reference_seconds: float = 0.0
    target_seconds: float = 0.0
    peak_bytes: int = 0
    nodes_reused: int = 0
    worker_log: Sequence[str] = ()


class NumericsRecord(StageRecord):
    """The numerics stage's record."""

    stage: str = STAGE
    stage_version: int = STAGE_VERSION
    facts: NumericsFacts
    observations: NumericsObservations = NumericsObservations()
