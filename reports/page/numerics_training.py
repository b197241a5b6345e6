"""One step of training on both sides: loss, gradients and what the step added to the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import Training, TrainingBlock

from ..words import exact_text, number_text, plural, sentence
from .ledger import Ledger
from .limits import pick
from .numerics_nodes import LOOK, metric_cell
from .parts import Cell, Column, Group, Row, Stat, Table, settle

_WEIGHT = {"fail": 0, "unverified": 1, "pass": 2}
_WORST = 12


def training_group(ledger: Ledger, facts: NumericsFacts, slug: str, rest: str, limit: int) -> Group | None:
    """Loss three ways and the nodes whose gradients are furthest off; None where no step was asked for."""
    step = facts.training
    if step is None:
        return None
    return Group(
        id=f"numerics--{slug}--training",
        title="A step of training",
        lead=lead_of(step),
        look=look_of(step),
        stats=_stats(ledger, step),
        tables=[settle(_table(ledger, step, slug, rest, min(limit, _WORST)))] if step.blocks else (),
    )


def look_of(step: Training) -> str:
    """The worst of its nodes' verdicts; unverified where the step did not run."""
    verdicts = [block.verdict for block in step.blocks]
    if "fail" in verdicts:
        return "fail"
    open_ones = step.reason or not verdicts or any(verdict != "pass" for verdict in verdicts)
    return "unverified" if open_ones else "pass"


def lead_of(step: Training) -> str:
    """What the step came to, in a sentence."""
    if step.reason and not step.blocks:
        return f"No step was taken: {step.reason}."
    wrong = [block for block in step.blocks if block.verdict == "fail"]
    after = f" {sentence(step.reason)}" if step.reason else ""
    if wrong:
        first = wrong[0]
        more = f", and {plural(len(wrong) - 1, 'more node')}" if wrong[1:] else ""
        return f"{first.name} is wrong in training: {first.reason or 'beyond tolerance'}{more}.{after}"
    good = sum(block.verdict == "pass" for block in step.blocks)
    whole = f"{exact_text(good)} of {plural(len(step.blocks), 'node')}"
    return f"{whole} within tolerance in gradient and update.{after}"


def _stats(ledger: Ledger, step: Training) -> Sequence[Stat]:
    if all(math.isnan(float(loss)) for loss in (step.loss, step.reference_loss, step.noise_loss)):
        return ()
    cells = [
        (title, ledger.derived(_loss(value), "text", "as recorded", pointer, numeric=True), remark)
        for title, value, pointer, remark in (
            ("Loss, target", step.loss, "/training/loss", "nats a token"),
            ("Loss, reference", step.reference_loss, "/training/reference_loss", "nats a token"),
            (
                "Loss, noise arm",
                step.noise_loss,
                "/training/noise_loss",
                "reference in the target's precision",
            ),
        )
    ]
    stats = [Stat(title, cell, remark) for title, cell, remark in cells]
    if step.layers:
        stats.append(Stat("Layers", ledger.cell("/training/layers", "exact"), step.optimiser[:80]))
    return stats


def _loss(value: float | int | str) -> str:
    """Losses differ in late digits."""
    return number_text(float(value), digits=6)


def _table(ledger: Ledger, step: Training, slug: str, rest: str, limit: int) -> Table:
    places = pick(len(step.blocks), limit, lambda place: _badness(step.blocks[place]))
    measures = (("gradient", "Gradient"), ("updated", "Update"))
    rows = []
    for place in places:
        block = step.blocks[place]
        look = LOOK.get(block.verdict, "unverified")
        cells = [
            metric_cell(ledger, getattr(block, part), f"/training/blocks/{place}/{part}", name, "number")
            for part, _ in measures
            for name in ("rel_l2", "ratio")
        ]
        name = Cell(block.name, code=True, status=look, below=block.reason)
        rows.append(Row([name, Cell(block.verdict, whole=True), *cells], status=look))
    return Table(
        id=f"numerics--{slug}--gradients",
        caption="Nodes in training, the worst",
        columns=[
            Column("Node"),
            Column("Verdict"),
            *(
                Column(title, True, told)
                for _, part in measures
                for title, told in (
                    (f"{part} L2", "Relative L2 over all parameters of the node."),
                    ("Over noise", "The same over the noise arm's."),
                )
            ),
        ],
        rows=rows,
        total=len(step.blocks),
        rest=rest,
    )


def _badness(block: TrainingBlock) -> tuple[int, float]:
    ratio = float(block.gradient.ratio) if block.gradient else math.inf
    return (_WEIGHT.get(block.verdict, 1), -(ratio if ratio == ratio else math.inf))
