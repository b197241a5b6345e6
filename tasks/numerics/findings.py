"""From compared nodes to findings: one for the first node of each kind, not one for each of sixty layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from day0.adapters.base.errors import Day0Error

from .. import thresholds
from ..finding import Finding, Subject, make_finding
from .record import Logits
from .walk.lockstep import Comparison
from .walk.node import CHANGED, NOT_COMPARED, NOT_REACHED, ZERO, NodeFacts
from .walk.router import FLIPS

_NAMED = 5


def findings_of(comparison: Comparison, kinds: dict[str, str], target: str, repro: str) -> list[Finding]:
    """All findings about nodes, weights and the output.

    Args:
        comparison: finished.
        kinds: node name -> kind; failing nodes of one kind share a finding.
        target: the target's text.
        repro: command that shows it again.
    """
    nodes = merge_calls(comparison.nodes)
    found = _weights(nodes)
    if comparison.stopped is not None:
        found.append(_stopped(comparison.stopped, nodes, target))
    faults = [facts for facts in nodes if facts.block.verdict == "fail"]
    for code in ("NUM001", "NUM002", "NUM003", "NUM004", "NUM017"):
        found += _grouped(code, [facts for facts in faults if _code(facts) == code], kinds, target, repro)
    found += _unsteady(faults, target)
    found += _inherited(nodes, bool(faults), target)
    found += _routed(nodes, target)
    found += _headroom(nodes, target)
    found += _changed(nodes)
    found += _not_compared([facts for facts in nodes if facts.outcome != CHANGED and not _unreached(facts)])
    found += _output(nodes, target)
    return found


def merge_calls(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """One entry a node: where a forward calls a node more than once, the worst of its calls."""
    order = ("pass", "inherited", NOT_COMPARED, "fail")
    merged: dict[str, NodeFacts] = {}
    for facts in nodes:
        known = merged.get(facts.block.name)
        if known is None or order.index(facts.block.verdict) > order.index(known.block.verdict):
            merged[facts.block.name] = facts
    return list(merged.values())


def _stopped(error: Day0Error, nodes: Sequence[NodeFacts], target: str) -> Finding:
    """Why the walk ended, and the nodes after: they lack nothing of their own, so no finding is theirs."""
    after = [facts for facts in nodes if _unreached(facts)]
    rest = f"; not compared: {_names(after)}" if after else ""
    said = f"{error.message.rstrip('.')}{rest}."
    return make_finding("NUM015", Subject(kind="model", name=target), said, remedy=error.remedy or None)


def _unreached(facts: NodeFacts) -> bool:
    return facts.block.reason.startswith(NOT_REACHED)


def _code(facts: NodeFacts) -> str:
    if facts.outcome == "shape" and facts.block.signature:
        return "NUM004"
    if facts.outcome:
        return "NUM002"
    metric = facts.fault.metric if facts.fault is not None else ""
    return {"nonfinite": "NUM003", FLIPS: "NUM017"}.get(metric, "NUM001")


def _weights(nodes: Sequence[NodeFacts]) -> list[Finding]:
    found = []
    for facts in nodes:
        bad = sorted(facts.nonfinite_weights.items())
        if bad:
            name = facts.block.name
            counts = ", ".join(f"{count} in {parameter}" for parameter, count in bad[:_NAMED])
            said = f"{name} has weights that are not finite: {counts}."
            found.append(make_finding("NUM006", Subject(kind="node", name=name), said))
    return found


def _grouped(
    code: str, faults: Sequence[NodeFacts], kinds: dict[str, str], target: str, repro: str
) -> list[Finding]:
    groups: dict[str, list[NodeFacts]] = {}
    for facts in faults:
        groups.setdefault(f"{kinds.get(facts.block.name)} {facts.outcome}", []).append(facts)
    return [_fault(code, group, target, repro) for group in groups.values()]


def _fault(code: str, group: Sequence[NodeFacts], target: str, repro: str) -> Finding:
    first = group[0]
    overflow = (
        " (the reference in the same precision overflows too)" if first.overflow and code == "NUM003" else ""
    )
    more = f"; so are {_names(group[1:])} of its kind" if len(group) > 1 else ""
    return make_finding(
        code,
        Subject(kind="node", name=first.block.name),
        f"{first.block.name} on {target}: {first.block.reason}{overflow}{more}.",
        evidence=(*first.log, repro),
    )


def _unsteady(faults: Sequence[NodeFacts], target: str) -> list[Finding]:
    """Faults that come and go: two runs on the same input are further apart than rounding explains."""
    off = [(facts, apart) for facts in faults if (apart := _apart(facts)) > thresholds.NUMERICS_RATIO]
    if not off:
        return []
    first, apart = off[0]
    said = (
        f"Two runs of {first.block.name} on {target} with the same input are {float(first.block.band):.3g} "
        f"apart (relative L2), {apart:.3g} times the noise"
    )
    more = f"; {len(off)} nodes in all differ so" if len(off) > 1 else ""
    return [make_finding("NUM034", Subject(kind="node", name=first.block.name), f"{said}{more}.")]


def _apart(facts: NodeFacts) -> float:
    """Distance of two runs in units of noise; NaN where one of them is not known."""
    local = facts.block.local
    if local is None or not float(local.rel_l2) > 0:
        return math.nan
    return float(facts.block.band) * float(local.ratio) / float(local.rel_l2)


def _inherited(nodes: Sequence[NodeFacts], faulty: bool, target: str) -> list[Finding]:
    off = [facts for facts in nodes if facts.block.verdict == "inherited"]
    if not off:
        return []
    first = off[0].block
    code = "NUM010" if faulty else "NUM005"
    said = f"{_names(off)} on {target}: {first.reason}; growth {float(first.growth):.3g} at {first.name}."
    return [make_finding(code, Subject(kind="node", name=first.name), said)]


def _headroom(nodes: Sequence[NodeFacts], target: str) -> list[Finding]:
    near = [facts.block for facts in nodes if float(facts.block.headroom) > thresholds.NUMERICS_HEADROOM]
    if not near:
        return []
    first = max(near, key=lambda block: float(block.headroom))
    said = (
        f"{first.name} reaches {float(first.largest):.3g} in the reference, {float(first.headroom):.0%} of "
        f"the largest number that {target} can hold"
    )
    more = f"; so near are {len(near)} nodes in all" if len(near) > 1 else ""
    return [make_finding("NUM018", Subject(kind="node", name=first.name), f"{said}{more}.")]


def left_out_findings(left_out: Mapping[str, str], dropped: Mapping[str, str]) -> list[Finding]:
    """Prompts of the set that did not run although the model could have run them, or that ended early."""
    found = []
    for name, reason in {
        **left_out,
        **{name.partition(".")[0]: why for name, why in dropped.items()},
    }.items():
        subject = Subject(kind="prompt", name=name)
        found.append(make_finding("NUM019", subject, f"The prompt {name} did not run: {reason}."))
    return found


def _routed(nodes: Sequence[NodeFacts], target: str) -> list[Finding]:
    flipped = [facts.block for facts in nodes if facts.block.verdict == "pass" and _outliers(facts)]
    if not flipped:
        return []
    counts = ", ".join(
        f"{_outliers(facts)} at {facts.block.name}"
        for facts in [facts for facts in nodes if facts.block in flipped][:_NAMED]
    )
    more = f" and at {len(flipped) - _NAMED} more nodes" if len(flipped) > _NAMED else ""
    said = f"Tokens of {target} routed otherwise than the reference's: {counts}{more}."
    return [make_finding("NUM011", Subject(kind="node", name=flipped[0].name), said)]


def _outliers(facts: NodeFacts) -> int:
    if facts.routing is not None and not facts.routing.reason:
        return facts.routing.near_tie
    return facts.block.local.outliers if facts.block.local is not None else 0


def _changed(nodes: Sequence[NodeFacts]) -> list[Finding]:
    return [
        make_finding(
            "NUM027",
            Subject(kind="node", name=facts.block.name),
            f"{facts.block.name} was not compared: {facts.block.reason}.",
        )
        for facts in nodes
        if facts.outcome == CHANGED
    ]


def _not_compared(nodes: Sequence[NodeFacts]) -> list[Finding]:
    """One finding a reason; `nodes` are all of them, in order, so that a reason may hold from one on."""
    groups: dict[str, list[NodeFacts]] = {}
    for facts in nodes:
        if facts.block.verdict == NOT_COMPARED:
            groups.setdefault(facts.block.reason, []).append(facts)
    found = []
    for reason, group in groups.items():
        name = group[0].block.name
        to_the_end = len(group) > 1 and [*group] == [*nodes[-len(group) :]]
        start = f"Not compared from {name} on ({_names(group)})" if to_the_end else _names(group)
        code = "NUM016" if reason == ZERO else "NUM008"
        found.append(make_finding(code, Subject(kind="node", name=name), f"{start}: {reason}."))
    return found


def _output(nodes: Sequence[NodeFacts], target: str) -> list[Finding]:
    found = []
    for how, logits in _agreements(nodes):
        if logits.decisive > decisive_limit(logits):
            found.append(_other_tokens(how, logits, target))
    return found


def _agreements(nodes: Sequence[NodeFacts]) -> list[tuple[str, Logits]]:
    """Prefill and decode, where they were compared."""
    head = next((facts for facts in nodes if facts.logits is not None), None)
    if head is None or head.logits is None:
        return []
    decode = [("decode", head.decode)] if head.decode is not None else []
    return [("prefill", head.logits), *decode]


def _other_tokens(how: str, logits: Logits, target: str) -> Finding:
    where = " in steps with a cache" if how == "decode" else ""
    said = (
        f"{target} chooses another token than the reference at {logits.decisive} of {logits.positions} "
        f"positions{where} where the reference is decided; top-1 agreement {float(logits.top1):.3f}, "
        f"KL {float(logits.kl):.3g} nats."
    )
    name = "decisive" if how == "prefill" else "decode.decisive"
    return make_finding("NUM007", Subject(kind="metric", name=name), said)


def decisive_limit(logits: Logits) -> float:
    """Decisive disagreements that chance explains."""
    return max(1.0, thresholds.NUMERICS_DECISIVE_SHARE * logits.positions)


def _names(nodes: Sequence[NodeFacts]) -> str:
    return _some([facts.block.name for facts in nodes])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
