"""One node: from what reference, noise arm and target made of it to what is known of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import Number, Value, json_number

from ... import thresholds
from ...outcomes import detail_of, log_of, outcome_of
from ..measures.judge import Judgement, judge_all
from ..measures.metrics import count_nonfinite
from ..measures.values import (
    WrongOutput,
    check_dtypes,
    distances,
    float_tensors,
    input_error,
    joined,
    signature,
)
from ..prompts.passes import MAIN, Pass
from ..record import Block, FirstFault, Logits, PromptResult
from ..record_parts import BugResult, Routing
from .forwards import Inputs

NOT_COMPARED = "unverified"
CHANGED = "changed"
"""Outcome of a node whose weights are others than those the reference was captured from."""
ZERO = "the reference's output is zero throughout, so no relative measure applies"
"""Reason of a node whose faults, but for a plain difference from zero, nothing here could show."""
NOT_FINITE = "no measure applies: the reference's output is not finite, or zero in part"
BEYOND_RANGE = "what it receives on the reference's stream is beyond the largest number of the target's dtype"
"""Reason of a node after one that overflowed: whatever it made of infinity says nothing of it."""
NOT_REACHED = "not reached: "
"""Begins the reason of a node that the walk did not come to; what ended the walk follows."""
_SECOND = "on a second run "
_ORDER = ("pass", "inherited", NOT_COMPARED, "fail")


class NodeFacts(Value):
    """What is known of a node once it is compared; kept in its unit.

    Attributes:
        block: for the record.
        fault: the measure beyond its tolerance, where the verdict is `fail`.
        outcome: class of failure where the target gave nothing to compare, else empty.
        log: the worker's last lines then.
        overflow: whether the reference in the target's precision is not finite either.
        nonfinite_weights: parameters with NaN or infinity -> how many.
        routing: the account of its router; None where it has none.
        bugs: what became of bugs that were put into it; empty where that was not asked for.
        beyond: prompt -> the measure that is beyond its tolerance on it.
        ratios: prompt -> how far off the node is on it, in units of noise.
        seen: calls that the target answered, of those asked.
        unseen: names of the passes that it did not answer.
        logits: agreement at the output on the main prompt; of the head only.
        decode: the same in steps with a cache.
        prompts: the same for each prompt.
        chosen: the target's next token after each position from the prompt's last on; of the head only.
        reference_chosen: the reference's likewise.
    """

    block: Block
    fault: FirstFault | None = None
    outcome: str = ""
    log: Sequence[str] = ()
    overflow: bool = False
    nonfinite_weights: Mapping[str, int] = {}
    routing: Routing | None = None
    bugs: Sequence[BugResult] = ()
    beyond: Mapping[str, str] = {}
    ratios: Mapping[str, Number] = {}
    seen: int = 0
    unseen: Sequence[str] = ()
    logits: Logits | None = None
    decode: Logits | None = None
    prompts: Sequence[PromptResult] = ()
    chosen: Sequence[int] = ()
    reference_chosen: Sequence[int] = ()


class Failure(Value):
    """Why a target gave no output."""

    outcome: str
    detail: str
    log: Sequence[str] = ()

    @classmethod
    def of(cls, error: Day0Error) -> Failure:
        """The error as it is kept."""
        return cls(outcome=outcome_of(error), detail=detail_of(error), log=log_of(error))


@dataclass(frozen=True)
class Seen:
    """Everything that is known of one node when it is judged.

    Attributes:
        node: compared.
        dtype: of the target.
        passes: that went through it, the main one first.
        inputs: of each pass.
        values: `STREAM/PASS` -> output; streams are reference, noise_local, noise, local, again, own.
        failures: `STREAM/PASS` -> why the target gave none.
        noise_error: why the noise arm gave nothing, else empty.
        kept: pass -> which of its tokens neither side routed otherwise, where that is known.
        nonfinite: parameters with NaN or infinity -> how many.
    """

    node: Node
    dtype: torch.dtype
    passes: Sequence[Pass]
    inputs: Mapping[str, Inputs]
    values: Mapping[str, Call]
    failures: Mapping[str, Failure]
    noise_error: str = ""
    kept: Mapping[str, Tensor] | None = None
    nonfinite: Mapping[str, int] | None = None

    @property
    def routed(self) -> bool:
        """Whether its tokens go to some of many parts."""
        return self.node.feed_forward == "moe" or self.node.layer_kind == "sparse_indexed"

    @property
    def groups(self) -> Mapping[str, Sequence[Pass]]:
        """What is judged together: name -> passes."""
        found: dict[str, list[Pass]] = {}
        for step in self.passes:
            found.setdefault(step.group, []).append(step)
        return found

    def tensors(self, stream: str, passes: Sequence[Pass]) -> list[Tensor] | None:
        """The output of a stream over passes; None where one of them is missing.

        Raises:
            WrongOutput: the outputs do not belong together.
        """
        calls = [self.values.get(f"{stream}/{step.name}") for step in passes]
        there = [call for call in calls if call is not None]
        return joined(there, [rows_of(step) for step in passes]) if len(there) == len(calls) else None


def rows_of(step: Pass) -> Tensor | None:
    """[batch * length] bool, which tokens of a pass are no padding; None: all."""
    return torch.tensor(step.mask).reshape(-1).bool() if step.mask is not None else None


def compare(seen: Seen) -> NodeFacts:
    """Judges what the target gave at a node, on every prompt."""
    facts = _compared(seen)
    asked = [step.name for step in seen.passes]
    unseen = tuple(name for name in asked if f"local/{name}" not in seen.values)
    return facts.model_copy(
        update={
            "nonfinite_weights": dict(seen.nonfinite or {}),
            "seen": len(asked) - len(unseen),
            "unseen": unseen,
        }
    )


def not_compared(node: Node, reason: str) -> NodeFacts:
    """Facts of a node that was not compared, and why."""
    return NodeFacts(block=_block(node, None, None, math.nan, NOT_COMPARED, reason))


def _compared(seen: Seen) -> NodeFacts:
    node, main = seen.node, seen.failures.get(f"local/{MAIN}")
    if f"local/{MAIN}" not in seen.values:
        reason = f"{main.outcome}: {main.detail}" if main else "not run"
        verdict = _of_failure(main.outcome) if main else "fail"
        facts = NodeFacts(block=_block(node, None, None, math.nan, verdict, reason))
        return facts.model_copy(
            update={"outcome": main.outcome if main else "not_run", "log": main.log if main else ()}
        )
    here: dict[str, Judgement | None] = {}
    signed = signature(seen.values[f"local/{MAIN}"])
    for group, passes in seen.groups.items():
        try:
            here[group] = _judged(seen, "local", "noise_local", passes)
            _check_dtypes(seen, "local", passes)
        except WrongOutput as wrong:
            where = "" if group == MAIN else f"on {group}: "
            block = _block(
                node, here.get(MAIN), None, math.nan, "fail", f"{where}{wrong.kind}: the target {wrong}"
            )
            block = block.model_copy(update={"signature": signed})
            return NodeFacts(block=block, outcome="shape", beyond={group: wrong.kind})
    try:
        again = _again(seen)
    except WrongOutput as wrong:
        reason = f"{_SECOND}{wrong.kind}: the target {wrong}"
        block = _block(node, here[MAIN], None, math.nan, "fail", reason)
        block = block.model_copy(update={"signature": signed, "bit_stable": False})
        return NodeFacts(block=block, outcome="shape", beyond={MAIN: wrong.kind})
    second = _fails(again) and not _fails(here[MAIN])
    return _with_own(seen, here | {MAIN: again} if second else here, signed, _SECOND if second else "")


def _again(seen: Seen) -> Judgement | None:
    """The second run on the main prompt; None where it gave the same bits as the first, or was not made.

    Which of its tokens were routed otherwise is not known.

    Raises:
        WrongOutput: the target's output has other parts, shapes or dtypes.
    """
    second = seen.values.get(f"again/{MAIN}")
    if second is None or signature(second) == signature(seen.values[f"local/{MAIN}"]):
        return None
    judged = _judged(seen, "again", "noise_local", seen.groups[MAIN])
    _check_dtypes(seen, "again", seen.groups[MAIN])
    return judged


def _with_own(seen: Seen, here: Mapping[str, Judgement | None], signed: str, which: str) -> NodeFacts:
    """Adds the own stream; `which` names the run that the judgement on the main prompt is of, or is empty."""
    main = seen.groups[MAIN]
    try:
        there = _judged(seen, "own", "noise", main)
    except WrongOutput:  # the stream goes on with it; whether it is right, the other input has shown
        there = None
    worst = max(here, key=lambda group: _badness(here[group], first=group == MAIN))
    verdict, reason = _verdict(seen, here, worst, there)
    reason = f"{which}{reason}" if verdict == "fail" and worst == MAIN else reason
    failure = next(iter(seen.failures.values()), None)
    shown = here[worst] if here[worst] is not None and _fails(here[worst]) else here[MAIN]
    block = _block(seen.node, shown, there, _growth(there, seen.inputs[MAIN]), verdict, reason)
    return NodeFacts(
        block=block.model_copy(
            update={
                "signature": signed,
                **_headroom(seen.tensors("reference", main) or (), seen.dtype),
                **_band(seen),
            }
        ),
        fault=None if verdict == NOT_COMPARED else _fault(seen.node, here[worst]),
        outcome=failure.outcome if failure else "",
        log=failure.log if failure else (),
        overflow=any(count_nonfinite(t) for t in seen.tensors("noise_local", main) or ()),
        beyond={group: str(found.excess) for group, found in here.items() if found and found.excess},
        ratios={group: found.metrics.ratio for group, found in here.items() if found},
    )


def _judged(seen: Seen, stream: str, arm: str, passes: Sequence[Pass]) -> Judgement | None:
    """A stream of the target against the noise arm's; None where one of them is not there.

    Raises:
        WrongOutput: the target's output has other parts or shapes.
    """
    target, noise = seen.tensors(stream, passes), seen.tensors(arm, passes)
    reference = seen.tensors("reference", passes)
    if target is None or reference is None or noise is None:
        return None
    kept = _kept(seen, passes) if stream == "local" else None
    return judge_all(
        distances(target, reference, seen.dtype, rows=kept),
        distances(noise, reference, seen.dtype, rows=kept),
        eps=torch.finfo(seen.dtype).eps,
        routed=seen.routed,
        kept=kept,
    )


def _check_dtypes(seen: Seen, stream: str, passes: Sequence[Pass]) -> None:
    """Of all but the head, whose logits many give wider than they computed them.

    Raises:
        WrongOutput: a dtype is not that of the noise arm.
    """
    target, noise = seen.tensors(stream, passes), seen.tensors("noise_local", passes)
    if seen.node.role != "head" and target is not None and noise is not None:
        check_dtypes(target, noise)


def _kept(seen: Seen, passes: Sequence[Pass]) -> Tensor | None:
    if seen.kept is None or any(step.name not in seen.kept for step in passes):
        return None
    parts = [(seen.kept[step.name], rows_of(step)) for step in passes]
    return torch.cat([kept if rows is None else kept[rows] for kept, rows in parts])


def _fails(judgement: Judgement | None) -> bool:
    return judgement is not None and judgement.excess is not None


def _badness(judgement: Judgement | None, *, first: bool) -> tuple[bool, bool]:
    """The main prompt speaks for the node unless it passes and another does not."""
    return _fails(judgement), first


def _verdict(
    seen: Seen, here: Mapping[str, Judgement | None], worst: str, there: Judgement | None
) -> tuple[str, str]:
    main, found = here[MAIN], here[worst]
    if main is None:
        return NOT_COMPARED, seen.noise_error or "the output holds no floating tensor"
    if _drowned(seen, worst, found):
        return NOT_COMPARED, BEYOND_RANGE
    if found is not None and found.excess is not None:
        return "fail", str(found.excess) if worst == MAIN else f"on {worst}: {found.excess}"
    if not main.applies and not main.zero:
        return NOT_COMPARED, NOT_FINITE
    by_weight = sorted(seen.failures.items(), key=lambda one: _of_failure(one[1].outcome) != "fail")
    for key, failure in by_weight:
        stream, _, name = key.partition("/")
        where = {"own": " on the target's own stream", "again": ""}.get(
            stream, f" on {name.partition('.')[0]}"
        )
        second = _SECOND if stream == "again" else ""
        return _of_failure(failure.outcome), f"{second}{failure.outcome}{where}: {failure.detail}"
    if main.zero:
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


def _of_failure(outcome: str) -> str:
    """What a stack says it does not do is not wrong; it is left uncompared."""
    return NOT_COMPARED if outcome == "unsupported" else "fail"


def _drowned(seen: Seen, group: str, found: Judgement | None) -> bool:
    """Whether numbers that are not finite came of inputs that the target's dtype could not hold.

    The reference in that dtype has to make such numbers of them, too: a mask may well hold infinity.
    """
    if found is None or found.excess is None or found.excess.metric != "nonfinite":
        return False
    passes = seen.groups[group]
    if not any(count_nonfinite(tensor) for tensor in seen.tensors("noise_local", passes) or ()):
        return False
    inputs = [seen.inputs[step.name] for step in passes]
    return any(
        count_nonfinite(lowered) > count_nonfinite(exact)
        for one in inputs
        for lowered, exact in zip(float_tensors(one.lowered), float_tensors(one.reference), strict=True)
    )


def _fault(node: Node, found: Judgement | None) -> FirstFault | None:
    excess = found.excess if found is not None else None
    if excess is None:
        return None
    return FirstFault(
        block=node.name,
        metric=excess.metric,
        value=json_number(excess.value),
        tolerance=json_number(excess.tolerance),
    )


def _growth(there: Judgement | None, inputs: Inputs) -> float:
    if there is None or inputs.own is None:
        return math.nan
    received = input_error(inputs.own, inputs.reference)
    return float(there.metrics.rel_l2) / received if received > 0 else math.nan


def _headroom(tensors: Sequence[Tensor], dtype: torch.dtype) -> dict[str, Number]:
    """The oracle's largest magnitude, and how near the target's dtype comes to its end there."""
    known = [float(t.abs().nan_to_num(0.0, 0.0, 0.0).max()) for t in tensors if t.numel()]
    largest = max(known, default=math.nan)
    return {
        "largest": json_number(largest),
        "headroom": json_number(largest / torch.finfo(dtype).max),
    }


def _band(seen: Seen) -> dict[str, Number | bool]:
    """How far two runs of the target on the same input are apart."""
    main = seen.groups[MAIN]
    first, second = seen.tensors("local", main), seen.tensors("again", main)
    if first is None or second is None:
        return {}
    try:
        apart = [one.rel_l2 for one in distances(second, first, seen.dtype)]
    except WrongOutput:
        return {"bit_stable": False}
    stable = signature(seen.values[f"again/{MAIN}"]) == signature(seen.values[f"local/{MAIN}"])
    known = [value for value in apart if value == value]
    return {"band": json_number(max(known, default=0.0)), "bit_stable": stable}


def _block(
    node: Node,
    here: Judgement | None,
    there: Judgement | None,
    growth: float,
    verdict: str,
    reason: str,
) -> Block:
    return Block(
        name=node.name,
        role=node.role,
        local=here.metrics if here else None,
        propagated=there.metrics if there else None,
        growth=json_number(growth),
        verdict=verdict,
        reason=reason,
    )
