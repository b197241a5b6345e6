"""One node: what reference and noise arm make of it, what the target makes of it, and what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from day0.adapters.base.errors import Day0Error, UnsupportedError, WorkerError
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import Value, json_number
from day0.adapters.models.casting import cast_like
from day0_worker.dtypes import torch_dtype

from .. import thresholds
from ..outcomes import detail_of, log_of, outcome_of
from ..reference_arm import Arm, ArmError
from ..target_nodes import TargetNodes
from .judge import Judgement, judge_all
from .metrics import count_nonfinite, nonfinite_weights
from .outputs import choices, compare_logits
from .record import Block, FirstFault, Logits
from .tokens import Tokens
from .units import Unit
from .values import WrongOutput, distances, float_tensors, in_dtype, input_error, same_call, signature

NOT_COMPARED = "unverified"
ZERO = "the reference's output is zero throughout, so no relative measure applies"
"""Reason of a node whose faults, but for a plain difference from zero, nothing here could show."""
NOT_FINITE = "no measure applies: the reference's output is not finite, or zero in part"


class NodeFacts(Value):
    """What is known of a node once it is compared; kept in its unit.

    Attributes:
        block: for the record.
        fault: the measure beyond its tolerance, where the verdict is `fail`.
        outcome: class of failure where the target gave nothing to compare, else empty.
        log: the worker's last lines then.
        overflow: whether the reference in the target's precision is not finite either.
        nonfinite_weights: parameters with NaN or infinity -> how many.
        logits: agreement at the output; of the head only.
        chosen: the target's next token after each position from the prompt's last on; of the head only.
        reference_chosen: the reference's likewise.
    """

    block: Block
    fault: FirstFault | None = None
    outcome: str = ""
    log: Sequence[str] = ()
    overflow: bool = False
    nonfinite_weights: Mapping[str, int] = {}
    logits: Logits | None = None
    chosen: Sequence[int] = ()
    reference_chosen: Sequence[int] = ()


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of a node on each stream.

    Attributes:
        reference: on the reference's.
        noise: on the noise arm's, in the target's precision.
        target: on the target's own; None once it has ended.
    """

    reference: Call
    noise: Call
    target: Call | None

    @property
    def local(self) -> Call:
        """The reference's arguments with the dtypes and masks that the target's precision has there."""
        return cast_like(self.reference, self.noise)


@dataclass(frozen=True)
class Answers:
    """What the target gave at one node.

    Attributes:
        local: on the reference's input; None where it gave none.
        own: on its own stream; None where it gave none or its stream has ended.
        error: the first failure, where there was one.
    """

    local: Call | None
    own: Call | None
    error: Day0Error | None


def run_reference(
    node: Node, weights: Mapping[str, Tensor], inputs: Inputs, reference: Arm, noise: Arm
) -> Unit:
    """The reference's unit of a node.

    `reference` is the node's output on the reference's stream, `noise` on the noise arm's, `noise_local` the
    noise arm's on the reference's input. Where the noise arm fails, its stream goes on with the reference's
    output.

    Raises:
        ArmError: the reference itself failed.
    """
    facts: dict[str, Any] = {"noise_error": "", "nonfinite_weights": nonfinite_weights(weights)}
    output = reference.run(node, weights, inputs.reference)
    if noise is reference:
        return Unit({"reference": output, "noise": output, "noise_local": output}, facts)
    try:
        local = noise.run(node, weights, inputs.local)
        same = same_call(inputs.local, inputs.noise)
        own = local if same else noise.run(node, weights, inputs.noise)
    except ArmError as error:
        goes_on = in_dtype(output, torch_dtype(noise.dtype))
        return Unit({"reference": output, "noise": goes_on}, facts | {"noise_error": error.message})
    return Unit({"reference": output, "noise": own, "noise_local": local}, facts)


def run_target(node: Node, expressions: Mapping[str, Any], inputs: Inputs, target: TargetNodes) -> Answers:
    """What the target gives on the reference's input and on its own stream.

    After an error on the reference's input its own stream is not tried: it would only fail, or hang, again.
    """
    try:
        local = target.run(node, expressions, inputs.local, mode="prefill").outputs
    except (WorkerError, UnsupportedError) as error:
        return Answers(None, None, error)
    if inputs.target is None:
        return Answers(local, None, None)
    if same_call(inputs.local, inputs.target):
        return Answers(local, local, None)
    try:
        own = target.run(node, expressions, inputs.target, mode="prefill").outputs
    except (WorkerError, UnsupportedError) as error:
        return Answers(local, None, error)
    return Answers(local, own, None)


def compare(
    node: Node, unit: Unit, answers: Answers, inputs: Inputs, tokens: Tokens, eps: float
) -> NodeFacts:
    """Judges what the target gave.

    Args:
        node: compared.
        unit: the reference's.
        answers: of the target.
        inputs: of the call.
        tokens: compared.
        eps: machine epsilon of the target's precision.
    """
    facts = _compared(node, unit, answers, inputs, tokens, eps)
    return facts.model_copy(update={"nonfinite_weights": unit.facts["nonfinite_weights"]})


def _compared(
    node: Node, unit: Unit, answers: Answers, inputs: Inputs, tokens: Tokens, eps: float
) -> NodeFacts:
    error = answers.error
    if answers.local is None:
        return _failed(node, error)
    try:
        here, there = _judged(node, unit, answers, eps)
    except WrongOutput as wrong:
        said = f"shape: the target {wrong}"
        return _block(node, None, None, math.nan, "fail", said, signature(answers.local), "shape")
    verdict, reason = _verdict(here, there, unit, error)
    signed, outcome = signature(answers.local), outcome_of(error) if error else ""
    facts = _block(node, here, there, _growth(there, inputs), verdict, reason, signed, outcome)
    overflow = any(count_nonfinite(tensor) for tensor in _tensors(unit, "noise_local"))
    return facts.model_copy(
        update={
            "fault": _fault(node, here),
            "log": log_of(error) if error else (),
            "overflow": overflow,
            **_at_the_head(node, answers.own, unit, tokens),
        }
    )


def not_compared(node: Node, reason: str) -> NodeFacts:
    """Facts of a node that was not compared, and why."""
    return _block(node, None, None, math.nan, NOT_COMPARED, reason, "", "")


def _failed(node: Node, error: Day0Error | None) -> NodeFacts:
    outcome = outcome_of(error) if error else "not_run"
    reason = f"{outcome}: {detail_of(error)}" if error else "not run"
    facts = _block(node, None, None, math.nan, "fail", reason, "", outcome)
    return facts.model_copy(update={"log": log_of(error) if error else ()})


def _judged(
    node: Node, unit: Unit, answers: Answers, eps: float
) -> tuple[Judgement | None, Judgement | None]:
    """On the reference's input, and on the target's own stream.

    Raises:
        WrongOutput: the target's output has other parts or shapes.
    """
    routed = node.feed_forward == "moe" or node.layer_kind == "sparse_indexed"
    reference = unit.values["reference"]

    def against(output: Call | None, arm: str) -> Judgement | None:
        if output is None:
            return None
        noise = distances(unit.values[arm], reference) if arm in unit.values else []
        return judge_all(distances(output, reference), noise, eps=eps, routed=routed)

    return against(answers.local, "noise_local"), against(answers.own, "noise")


def _fault(node: Node, here: Judgement | None) -> FirstFault | None:
    excess = here.excess if here is not None else None
    if excess is None:
        return None
    return FirstFault(
        block=node.name,
        metric=excess.metric,
        value=json_number(excess.value),
        tolerance=json_number(excess.tolerance),
    )


def _tensors(unit: Unit, name: str) -> list[Tensor]:
    return float_tensors(unit.values[name]) if name in unit.values else []


def _growth(there: Judgement | None, inputs: Inputs) -> float:
    if there is None or inputs.target is None:
        return math.nan
    received = input_error(inputs.target, inputs.reference)
    return float(there.metrics.rel_l2) / received if received > 0 else math.nan


def _verdict(
    here: Judgement | None, there: Judgement | None, unit: Unit, error: Day0Error | None
) -> tuple[str, str]:
    if here is None:
        return NOT_COMPARED, unit.facts.get("noise_error") or "the output holds no floating tensor"
    if here.excess is not None:
        return "fail", str(here.excess)
    if not here.applies and not here.zero:
        return NOT_COMPARED, NOT_FINITE
    if error is not None:
        return "fail", f"{outcome_of(error)} on the target's own stream: {detail_of(error)}"
    if here.zero:
        return NOT_COMPARED, ZERO
    if there is None:
        return "pass", "compared on the reference's input only: the target's own stream ended before"
    ratio = float(there.metrics.token_ratio)
    if there.metrics.nonfinite or ratio > thresholds.NUMERICS_PROPAGATED_RATIO:
        return (
            "inherited",
            f"off only by what it received: token_ratio {ratio:.3g} on the target's own stream",
        )
    return "pass", ""


def _block(
    node: Node,
    here: Judgement | None,
    there: Judgement | None,
    growth: float,
    verdict: str,
    reason: str,
    signed: str,
    outcome: str,
) -> NodeFacts:
    block = Block(
        name=node.name,
        role=node.role,
        local=here.metrics if here else None,
        propagated=there.metrics if there else None,
        growth=json_number(growth),
        verdict=verdict,
        reason=reason,
        signature=signed,
    )
    return NodeFacts(block=block, outcome=outcome)


def _at_the_head(node: Node, own: Call | None, unit: Unit, tokens: Tokens) -> dict[str, Any]:
    """Agreement of the logits and the choices after the prompt; empty for other nodes."""
    if node.role != "head":
        return {}
    reference = _logits(unit.values["reference"])
    last = min(tokens.prompt + tokens.said, len(tokens.ids))
    after = range(tokens.prompt - 1, last) if tokens.prompt else ()
    if reference is None:
        return {}
    found: dict[str, Any] = {"reference_chosen": choices(reference, list(after))}
    theirs, noise = _logits(own), _logits(unit.values["noise"])
    if theirs is not None and noise is not None and theirs.shape == reference.shape:
        found["logits"] = compare_logits(theirs, reference, noise)
        found["chosen"] = choices(theirs, list(after))
    return found


def _logits(value: Call | None) -> Tensor | None:
    """[positions, vocabulary] of a head's output."""
    tensors = float_tensors(value) if value is not None else []
    if not tensors or tensors[0].dim() < 2:
        return None
    return tensors[0].reshape(-1, tensors[0].shape[-1])
