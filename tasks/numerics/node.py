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


class NodeFacts(Value):
    """What is known of a node once it is compared; kept in its unit.

    Attributes:
        block: for the record.
        fault: the measure beyond its tolerance, where the verdict is `fail`.
        outcome: class of failure where the target gave nothing to compare, else empty.
        log: the worker's last lines then.
        overflow: whether the reference in the target's precision is not finite either.
        logits: agreement at the output; of the head only.
        chosen: the target's next token after each position from the prompt's last on; of the head only.
        reference_chosen: the reference's likewise.
    """

    block: Block
    fault: FirstFault | None = None
    outcome: str = ""
    log: Sequence[str] = ()
    overflow: bool = False
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


def run_target(
    node: Node, expressions: Mapping[str, Any], inputs: Inputs, target: TargetNodes
) -> tuple[Call | None, Call | None, Day0Error | None]:
    """The target's output on the reference's input and on its own stream, and its first error.

    After an error on the reference's input its own stream is not tried: it would only fail, or hang, again.
    """
    try:
        local = target.run(node, expressions, inputs.local, mode="prefill").outputs
    except (WorkerError, UnsupportedError) as error:
        return None, None, error
    if inputs.target is None:
        return local, None, None
    if same_call(inputs.local, inputs.target):
        return local, local, None
    try:
        return local, target.run(node, expressions, inputs.target, mode="prefill").outputs, None
    except (WorkerError, UnsupportedError) as error:
        return local, None, error


def compare(
    node: Node,
    unit: Unit,
    local: Call | None,
    own: Call | None,
    error: Day0Error | None,
    inputs: Inputs,
    tokens: Tokens,
    eps: float,
) -> NodeFacts:
    """Judges what the target gave.

    Args:
        node: compared.
        unit: the reference's.
        local: the target's output on the reference's input, or None.
        own: the target's output on its own stream, or None.
        error: why one of them is None, where the target failed.
        inputs: of the call.
        tokens: compared.
        eps: machine epsilon of the target's precision.
    """
    if local is None:
        return _failed(node, error)
    routed = node.feed_forward == "moe" or node.layer_kind == "sparse_indexed"
    try:
        here = judge_all(
            distances(local, unit.values["reference"]),
            distances(unit.values["noise_local"], unit.values["reference"])
            if "noise_local" in unit.values
            else [],
            eps=eps,
            routed=routed,
        )
        there = _propagated(own, unit, eps, routed)
    except WrongOutput as wrong:
        return _block(
            node, None, None, math.nan, "fail", f"shape: the target {wrong}", signature(local), "shape"
        )
    growth = _growth(there, inputs)
    verdict, reason = _verdict(here, there, unit, error)
    facts = _block(
        node, here, there, growth, verdict, reason, signature(local), outcome_of(error) if error else ""
    )
    excess = here.excess if here else None
    fault = None
    if excess is not None:
        fault = FirstFault(
            block=node.name,
            metric=excess.metric,
            value=json_number(excess.value),
            tolerance=json_number(excess.tolerance),
        )
    return facts.model_copy(
        update={
            "fault": fault,
            "log": log_of(error) if error else (),
            "overflow": "noise_local" in unit.values
            and any(count_nonfinite(tensor) for tensor in float_tensors(unit.values["noise_local"])),
            **_at_the_head(node, own, unit, tokens),
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


def _propagated(own: Call | None, unit: Unit, eps: float, routed: bool) -> Judgement | None:
    if own is None:
        return None
    reference = unit.values["reference"]
    return judge_all(
        distances(own, reference), distances(unit.values["noise"], reference), eps=eps, routed=routed
    )


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
    if not here.applies:
        return NOT_COMPARED, "no measure applies: the reference's output is zero or not finite"
    if error is not None:
        return "fail", f"{outcome_of(error)} on the target's own stream: {detail_of(error)}"
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
    after = (
        range(max(tokens.prompt - 1, 0), min(tokens.prompt + tokens.said, len(tokens.ids)))
        if tokens.prompt
        else ()
    )
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
