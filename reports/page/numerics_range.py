"""How near nodes come to the end of the dtype's range, and how far two runs of the target are apart."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.thresholds import NUMERICS_HEADROOM_SHOWN

from ..words import exact_text, number_text, plural
from .depth_axes import finite
from .ledger import Ledger
from .numerics_nodes import node_id
from .parts import Cell, Column, Group, Row, Table, settle

_MOST_ROWS = 5


def judged(facts: NumericsFacts) -> tuple[str, str]:
    """Verdict word and what there is to say of range and repeatability; empty where neither was measured."""
    measured, near = _near(facts)
    twice = [node for node in facts.blocks if node.bit_stable is not None]
    over = any(share >= 1 for share, _ in near)
    told = (_range_sentence(facts.blocks, measured, near), _band_sentence(twice))
    return "fail" if over else "warn" if near else "pass", " ".join(part for part in told if part)


def _near(facts: NumericsFacts) -> tuple[Sequence[tuple[float, int]], Sequence[tuple[float, int]]]:
    """Share of the range and place of each node that was measured; then of those beyond what is shown."""
    ranges = [(_share(node), place) for place, node in enumerate(facts.blocks)]
    measured = [(share, place) for share, place in ranges if share is not None]
    near = [item for item in measured if item[0] > NUMERICS_HEADROOM_SHOWN]
    return measured, sorted(near, key=lambda item: (-item[0], item[1]))


def range_group(ledger: Ledger, facts: NumericsFacts, slug: str) -> Group | None:
    """Nodes nearest to overflow and the run-to-run band; None where neither was measured."""
    look, told = judged(facts)
    if not told:
        return None
    _, near = _near(facts)
    places = [place for _, place in near[:_MOST_ROWS]]
    return Group(
        id=f"numerics--{slug}--range",
        title="Range and repeatability",
        lead=told,
        look=look,
        tables=[settle(_table(ledger, facts, slug, places))] if places else (),
    )


def _share(node: Node) -> float | None:
    """Largest magnitude over the dtype's largest number; infinite where the reference's own is."""
    number = float(node.headroom)
    return None if number != number else number


def _range_sentence(
    blocks: Sequence[Node], measured: Sequence[tuple[float, int]], near: Sequence[tuple[float, int]]
) -> str:
    if not measured:
        return ""
    if not near:
        most, place = max(measured, key=lambda item: item[0])
        return (
            f"No node comes near the end of the dtype's range: {blocks[place].name} comes nearest, "
            f"{number_text(most)} of it."
        )
    share, place = near[0]
    if share >= 1:
        return (
            f"{blocks[place].name} overflows: it needs {number_text(share)} times the dtype's largest number."
        )
    verb, limit = "comes" if len(near) == 1 else "come", number_text(NUMERICS_HEADROOM_SHOWN)
    return (
        f"{plural(len(near), 'node')} {verb} beyond {limit} of the dtype's largest number, "
        f"{blocks[place].name} the furthest, {number_text(share)}: larger inputs may overflow there."
    )


def _band_sentence(twice: Sequence[Node]) -> str:
    if not twice:
        return ""
    loose = [node for node in twice if not node.bit_stable]
    if not loose:
        return f"Two runs of the target are equal to the last bit at all {plural(len(twice), 'node')}."
    bands = [(band, node.name) for node in loose if (band := finite(node.band)) is not None]
    most = f": they are apart by {number_text(max(bands)[0])} at most, at {max(bands)[1]}" if bands else ""
    stable = f"{exact_text(len(twice) - len(loose))} of {plural(len(twice), 'node')}"
    return f"Two runs of the target are equal to the last bit at {stable} only{most}."


def _table(ledger: Ledger, facts: NumericsFacts, slug: str, places: Sequence[int]) -> Table:
    rows = []
    for place in places:
        node, share = facts.blocks[place], _share(facts.blocks[place]) or 0.0
        look = "fail" if share >= 1 else "warn"
        rows.append(
            Row(
                [
                    Cell(node.name, code=True, status=look),
                    Cell(node.role),
                    ledger.cell(f"/blocks/{place}/largest", "number"),
                    ledger.cell(f"/blocks/{place}/headroom", "number"),
                ],
                id=f"{node_id(slug, node.name)}--range",
                status=look,
            )
        )
    return Table(
        id=f"numerics--{slug}--headroom",
        caption="Nearest to overflow",
        columns=[
            Column("Node"),
            Column("Role"),
            Column("Largest magnitude", True, "Of the reference's output."),
            Column("Over the dtype's largest", True, "At 1 the target's dtype cannot hold it."),
        ],
        rows=rows,
    )
