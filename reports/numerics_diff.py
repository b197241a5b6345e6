"""What differs between two comparisons of the same target, node by node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from day0.tasks.numerics.record import Block, Metrics, NumericsRecord
from day0.tasks.thresholds import METRIC_CHANGE_FLOOR, SIGNATURE_BAND_FACTOR

from .change import Change
from .metric_change import beyond_band, exceeds, metric_change
from .numerics_parts_diff import part_changes
from .signatures import Moves
from .words import listed, number_text


def numerics_changes(
    target: str, before: NumericsRecord, after: NumericsRecord, moves: Moves | None = None
) -> Iterator[Change]:
    """Node verdicts, numbers beyond the band, the first node that changed, the output, the other parts.

    Args:
        target: whose.
        before: the earlier record.
        after: the later one.
        moves: how far each node's output moved, from the signatures of both runs (`reports/signatures.py`).
    """
    moves = moves or Moves()
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
        yield from _block(target, old, new, moves)
    yield from _signature(target, before.facts.blocks, later, moves)
    steady = all(block.bit_stable is not False for block in (*before.facts.blocks, *after.facts.blocks))
    yield from part_changes(target, before.facts, after.facts, steady=steady)


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


def _block(target: str, old: Block, new: Block, moves: Moves) -> Iterator[Change]:
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
    # Of a node that differs from run to run the numbers wander with it.
    steady = _is_steady(old, new) or _is_another(old, new, moves)
    if steady and old.local is not None and new.local is not None:
        yield from _metrics(target, new.name, old.local, new.local)


def _metrics(target: str, node: str, old: Metrics, new: Metrics) -> Iterator[Change]:
    for metric, floor in METRIC_CHANGE_FLOOR.items():
        before, after = getattr(old, metric), getattr(new, metric)
        if beyond_band(before, after, floor):
            yield metric_change(target, node, metric, before, after, worse=exceeds(after, before))
    if old.nonfinite != new.nonfinite:
        worse = new.nonfinite > old.nonfinite
        yield metric_change(target, node, "nonfinite", old.nonfinite, new.nonfinite, worse=worse)


def _signature(
    target: str, before: Sequence[Block], later: Mapping[str, Block], moves: Moves
) -> Iterator[Change]:
    """The first node, in topological order, whose output on the reference's own input is another."""
    pairs = [(block, later[block.name]) for block in before if block.name in later]
    changed = [(old, new) for old, new in pairs if _is_another(old, new, moves)]
    if changed:
        old, new = changed[0]
        others = [block.name for block, _ in changed[1:]]
        rest = f" (and then {listed(others, 2)})" if others else ""
        yield Change(
            kind="signature",
            target=target,
            stage="numerics",
            subject=new.name,
            before=old.signature,
            after=new.signature,
            text=f"{target}: first node that changed: {new.name}{_how_far(old, new, moves)}{rest}",
        )


def _is_another(old: Block, new: Block, moves: Moves) -> bool:
    """Whether the output of a node changed by more than it does from run to run.

    A digest that differs proves it where the node is bit-stable or was run once. Where it is not, it differs
    in every run, and only the distance can tell; likewise where the runs went over other tokens.
    """
    if not old.signature or not new.signature or old.signature == new.signature:
        return False
    distance = moves.by_node.get(new.name)
    if _is_steady(old, new):
        return moves.alike is None or bool(distance)
    band = _band(old, new)
    return distance is not None and band is not None and distance > SIGNATURE_BAND_FACTOR * band


def _is_steady(old: Block, new: Block) -> bool:
    return old.bit_stable is not False and new.bit_stable is not False


def _band(old: Block, new: Block) -> float | None:
    """The larger run-to-run distance of the two runs; None where neither ran twice."""
    known = [float(block.band) for block in (old, new) if not math.isnan(float(block.band))]
    return max(known, default=None)


def _how_far(old: Block, new: Block, moves: Moves) -> str:
    """`, moved by 3.1e-3, run-to-run band 0`; empty where the runs left no signatures."""
    distance, band = moves.by_node.get(new.name), _band(old, new)
    measured = f", run-to-run band {'not measured' if band is None else number_text(band)}"
    if distance is None:
        return measured if band is not None else ""
    if math.isinf(distance):
        return f", its output has another shape{measured}"
    some = f" by the {moves.alike} tokens that both runs begin with" if moves.alike is not None else ""
    return f", moved by {number_text(distance)}{some}{measured}"
