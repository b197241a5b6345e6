"""What differs between two comparisons of the same target, node by node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from day0.adapters.base.values import Number
from day0.tasks.numerics.record import Block, Metrics, NumericsRecord
from day0.tasks.thresholds import METRIC_CHANGE_FACTOR, METRIC_CHANGE_FLOOR

from .change import Change
from .words import listed, number_text


def numerics_changes(target: str, before: NumericsRecord, after: NumericsRecord) -> Iterator[Change]:
    """Node verdicts, numbers beyond the band, the first node with another output, agreement at the output."""
    yield from _first_fault(target, before, after)
    earlier = {block.name: block for block in before.facts.blocks}
    later = {block.name: block for block in after.facts.blocks}
    for name in dict.fromkeys([*earlier, *later]):
        old, new = earlier.get(name), later.get(name)
        if old is None or new is None:
            told = "is new" if old is None else "is gone"
            yield Change(
                kind="node",
                target=target,
                stage="numerics",
                subject=name,
                text=f"{target}: node {name} {told}",
            )
            continue
        yield from _block(target, old, new)
    yield from _signature(target, before.facts.blocks, later)
    yield from _logits(target, before, after)


def _first_fault(target: str, before: NumericsRecord, after: NumericsRecord) -> Iterator[Change]:
    old, new = before.facts.first_fault, after.facts.first_fault
    if (old.block if old else "") == (new.block if new else ""):
        return
    earlier, later = old.block if old else "none", new.block if new else "none"
    yield Change(
        kind="node",
        target=target,
        stage="numerics",
        subject=later if new else earlier,
        before=earlier,
        after=later,
        worse=new is not None if old is None or new is None else None,
        fails=old is None,
        text=f"{target}: first node beyond tolerance {earlier} -> {later}",
    )


def _block(target: str, old: Block, new: Block) -> Iterator[Change]:
    if old.verdict != new.verdict:
        yield Change(
            kind="node",
            target=target,
            stage="numerics",
            subject=new.name,
            before=old.verdict,
            after=new.verdict,
            worse=True if new.verdict == "fail" else False if old.verdict == "fail" else None,
            fails=new.verdict == "fail",
            text=f"{target}: node {new.name} {old.verdict} -> {new.verdict} {new.reason}".rstrip(),
        )
    if old.local is not None and new.local is not None:
        yield from _metrics(target, new.name, old.local, new.local)


def _metrics(target: str, node: str, old: Metrics, new: Metrics) -> Iterator[Change]:
    for metric, floor in METRIC_CHANGE_FLOOR.items():
        before, after = getattr(old, metric), getattr(new, metric)
        if beyond_band(before, after, floor):
            yield _metric(target, node, metric, before, after, worse=_exceeds(after, before))
    if old.nonfinite != new.nonfinite:
        worse = new.nonfinite > old.nonfinite
        yield _metric(target, node, "nonfinite", old.nonfinite, new.nonfinite, worse=worse)


def beyond_band(before: Number, after: Number, floor: float = 0.0) -> bool:
    """Whether a measure moved by more than `METRIC_CHANGE_FACTOR`, or became or ceased to be finite or zero.

    What stays at or below `floor` does not count, however much it moved.
    """
    old, new = abs(float(before)), abs(float(after))
    if not (math.isfinite(old) and math.isfinite(new)):
        return str(before) != str(after)
    if max(old, new) <= floor or old == new:
        return False
    return min(old, new) == 0 or max(old, new) / min(old, new) > METRIC_CHANGE_FACTOR


def _exceeds(after: Number, before: Number) -> bool:
    old, new = abs(float(before)), abs(float(after))
    return math.isnan(new) or new > old


def _metric(target: str, node: str, metric: str, before: Number, after: Number, *, worse: bool) -> Change:
    return Change(
        kind="metric",
        target=target,
        stage="numerics",
        subject=f"{node} {metric}",
        before=before,
        after=after,
        worse=worse,
        text=f"{target}: {node} {metric} {number_text(before)} -> {number_text(after)}",
    )


def _signature(target: str, before: Sequence[Block], later: Mapping[str, Block]) -> Iterator[Change]:
    """The first node, in topological order, whose output on the reference's own input is another."""
    changed = [
        block
        for block in before
        if block.name in later
        and block.signature
        and later[block.name].signature
        and block.signature != later[block.name].signature
    ]
    if changed:
        first = changed[0]
        rest = f" (and then {listed([block.name for block in changed[1:]], 2)})" if changed[1:] else ""
        yield Change(
            kind="signature",
            target=target,
            stage="numerics",
            subject=first.name,
            before=first.signature,
            after=later[first.name].signature,
            text=f"{target}: first node with another output is {first.name}{rest}",
        )


def _logits(target: str, before: NumericsRecord, after: NumericsRecord) -> Iterator[Change]:
    old, new = before.facts.logits, after.facts.logits
    if old is None or new is None:
        if old is not new:
            text = f"{target}: agreement at the output is {'gone' if new is None else 'new'}"
            yield Change(kind="node", target=target, stage="numerics", subject="logits", text=text)
        return
    for metric, more_is_worse in (("top1", False), ("top5", False), ("kl", True), ("decisive", True)):
        earlier, later = getattr(old, metric), getattr(new, metric)
        moved = beyond_band(earlier, later) if metric == "kl" else earlier != later
        if moved:
            worse = _exceeds(later, earlier) == more_is_worse or str(later) == "NaN"
            yield _metric(target, "logits", metric, earlier, later, worse=worse)
