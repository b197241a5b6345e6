"""The parts of the numerics record that stand for themselves: a measure, a router, a check, a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import model_validator

from day0.adapters.base.values import Number, Value


class Metrics(Value):
    """Distance of one node's output from the reference's; formulas in `tasks/numerics/measures/metrics.py`.

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
        worst_channel: largest rel_l2 of any channel (last dimension), over all tokens.
        channel_ratio: largest over channels of the channel's rel_l2 over the noise arm's for that channel,
            which counts as twice the typical channel's at least.
        ulp: 99.9 % quantile of the error in units in the last place of the target's dtype at the reference's
            magnitude (rules: `tasks/numerics/measures/ulps.py`).
        outliers: tokens of a routed node that are too far off for rounding; near-ties that were routed
            otherwise.
        nonfinite: NaN and infinity in the target's output that the reference does not have.
        nan: those of them that are NaN.
        not_applicable: measures that say nothing here -> why (constant, zero, too few tokens, ...).
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
    worst_channel: Number = "NaN"
    channel_ratio: Number = "NaN"
    ulp: Number = "NaN"
    outliers: int = 0
    nonfinite: int = 0
    nan: int = 0
    not_applicable: Mapping[str, str] = {}


class ReferenceCheck(Value):
    """Whether the reference itself can be trusted.

    Attributes:
        state: `pass`, `fail` or `unverified`.
        method: `from_pretrained`, `likelihood`, `samples` or `none`; several with a comma.
        decided_by: those of them whose word the state is; empty where none has one.
        detail: what was measured, in a sentence.
        value: of the first in `decided_by`: largest relative difference of the logits (from_pretrained),
            nats per token (likelihood), samples that it continues otherwise (samples).
        limit: that it was held against.
    """

    state: str = "unverified"
    method: str = "none"
    decided_by: str = ""
    detail: str = ""
    value: Number = "NaN"
    limit: Number = "NaN"


class ImageResult(Value):
    """The features of some images on the target's own stream: what the text would take of them.

    Attributes:
        name: of the images, `image` or `image_aspect`.
        purpose: what they can show.
        shown: their sizes.
        tokens: rows of features compared; 0 where they were not.
        state: `pass`, `fail` or `unverified`.
        metrics: distance of the features from the reference's, over the noise arm's on its own stream.
        reason: which measure is beyond what rounding adds up to, or why they were not compared.
    """

    name: str = ""
    purpose: str = ""
    shown: str = ""
    tokens: int = 0
    state: str = "unverified"
    metrics: Metrics | None = None
    reason: str = ""


class ImageFeatures(Value):
    """Vision tower and projector as a whole; their nodes stand among the others.

    Attributes:
        state: `pass`, `fail` or `unverified`.
        results: one for each call with images.
        reason: why no image was compared, else empty.
        reference_check: whether the reference's own features can be trusted.
    """

    state: str = "unverified"
    results: Sequence[ImageResult] = ()
    reason: str = ""
    reference_check: ReferenceCheck = ReferenceCheck()


class Routing(Value):
    """One router, the target's choices held against the reference's on the reference's input.

    Attributes:
        name: of the node.
        tokens: that were routed.
        flips: tokens whose set of experts differs.
        near_tie: flips that rounding explains: the reference's margin lies within the noise of its scores.
        unexplained: the other flips.
        slots: tokens with the same experts in another order.
        unflipped_ratio: error of the output on the tokens that were not flipped, over the noise arm's.
        forced_ids: relative L2 of the experts' output on the flipped tokens with the reference's experts
            and the target's weights for them; NaN where none is flipped.
        forced_both: the same with the reference's experts and weights: what is left is the experts' own.
        load: expert -> tokens that the target sent there, the busiest first, at most sixteen.
        imbalance: the busiest expert's tokens over the mean, target.
        reference_imbalance: the same for the reference.
        experts: how many there are.
        reason: why something could not be counted, else empty.
    """

    name: str
    tokens: int = 0
    flips: int = 0
    near_tie: int = 0
    unexplained: int = 0
    slots: int = 0
    unflipped_ratio: Number = "NaN"
    forced_ids: Number = "NaN"
    forced_both: Number = "NaN"
    load: Mapping[str, int] = {}
    imbalance: Number = "NaN"
    reference_imbalance: Number = "NaN"
    experts: int = 0
    reason: str = ""


class TaskMetric(Value):
    """A task on both sides.

    Attributes:
        name: of the task.
        items: how many questions; 0 where it did not run.
        reference: share that the reference answers rightly.
        target: likewise.
        difference: target less reference.
        low: of the 95 % confidence interval on the difference.
        high: likewise.
        reason: why it does not apply, else empty.
    """

    name: str = ""
    items: int = 0
    reference: Number = "NaN"
    target: Number = "NaN"
    difference: Number = "NaN"
    low: Number = "NaN"
    high: Number = "NaN"
    reason: str = ""


class BugResult(Value):
    """One canonical bug put into the target or into the reading of the checkpoint.

    Attributes:
        bug: its name.
        where: node, or `checkpoint`.
        applies: whether its effect is large enough to be seen in the target's precision.
        applicability: `yes`, `below_noise` (its effect is smaller than rounding) or `no` (the model
            lacks the part).
        effect: in fp64 on that node, in units of noise, largest over the panel; NaN where it does not apply.
        detected: whether the verdict fell; None where it does not apply.
        block_right: whether the right node, and no other, was named; None likewise.
        by: the measure that showed it.
        dtype: of the target on which it was found; `fp32` for those below the noise.
        reason: why it does not apply, or what went wrong.
    """

    bug: str
    where: str = ""
    applies: bool = False
    applicability: str = "no"
    effect: Number = "NaN"
    detected: bool | None = None
    block_right: bool | None = None
    by: str = ""
    dtype: str = ""
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _applies(cls, given: Any) -> Any:
        """The one follows from the other."""
        return {**given, "applies": given.get("applicability") == "yes"} if isinstance(given, dict) else given


class SelfTest(Value):
    """The gate tested by bugs put in on purpose.

    Attributes:
        matrix: every bug.
        observer: whether the target's output is the same with and without capturing; None: not tried.
    """

    matrix: Sequence[BugResult] = ()
    observer: bool | None = None


class Manifest(Value):
    """What was to be captured and what was.

    Attributes:
        expected: calls of nodes that a forward makes, over all prompts.
        seen: of these that the target answered.
        missing: the first few that it did not.
    """

    expected: int = 0
    seen: int = 0
    missing: Sequence[str] = ()


class PrecisionRow(Value):
    """One role in a lower precision, the rest as it is.

    Attributes:
        role: out of the design's vocabulary.
        dtype: short name of the lower precision.
        scheme: how numbers are scaled, e.g. `per channel`.
        rel_l2: largest of a node of that role, on the reference's input.
        ratio: largest of a node in units of the noise of the target's own precision there.
        kl: nats per position at the output, all nodes of the role lowered.
        top1: agreement at the output.
        worst: node of rel_l2.
        bytes: weights of the role in that precision.
        tolerates: whether the role may be lowered.
    """

    role: str
    dtype: str
    scheme: str = ""
    rel_l2: Number = "NaN"
    ratio: Number = "NaN"
    kl: Number = "NaN"
    top1: Number = "NaN"
    worst: str = ""
    bytes: int = 0
    tolerates: bool = False


class Precision(Value):
    """Which roles tolerate which precision.

    Attributes:
        rows: what was tried.
        policy: role -> lowest precision that it tolerates.
        kl: nats per position with the whole policy in force.
    """

    rows: Sequence[PrecisionRow] = ()
    policy: Mapping[str, str] = {}
    kl: Number = "NaN"


class TrainingBlock(Value):
    """One node in a step of training.

    Attributes:
        name: of the node.
        gradient: distance of its gradients from the reference's, over all its parameters.
        updated: the same of what the step added to its weights.
        verdict: `pass`, `fail` or `unverified`.
        reason: which measure is beyond which tolerance.
    """

    name: str
    gradient: Metrics | None = None
    updated: Metrics | None = None
    verdict: str = "unverified"
    reason: str = ""


class Training(Value):
    """One step of loss, backward and optimiser.

    Attributes:
        layers: of the minimal model.
        loss: of the target.
        reference_loss: of the reference.
        noise_loss: of the reference in the target's precision.
        optimiser: with its settings.
        blocks: each node.
        reason: why it did not run, else empty.
    """

    layers: int = 0
    loss: Number = "NaN"
    reference_loss: Number = "NaN"
    noise_loss: Number = "NaN"
    optimiser: str = ""
    blocks: Sequence[TrainingBlock] = ()
    reason: str = ""
