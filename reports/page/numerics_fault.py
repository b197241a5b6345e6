"""The first fault: from the node down to the operator, the measure, and the script that shows it again."""

from __future__ import annotations

import math

from day0.tasks.numerics.record import FirstFault, NumericsFacts

from ..words import exact_text, number_text
from .depth_axes import Locate
from .ledger import Ledger
from .parts import Script, Stat, Step, Trail
from .text import LINE_LIMIT, clean

_MOST_LINES = 150
_MOST_CHARACTERS = 8_000
_PLACE = "stages.numerics.facts.first_fault.repro"


def measured(fault: FirstFault) -> str:
    """The measure with its tolerance; a failure, of which nothing was measured, by its class alone."""
    if math.isnan(float(fault.value)):
        return fault.metric
    return f"{fault.metric} {number_text(fault.value)}, allowed {number_text(fault.tolerance)}"


def fault_trail(ledger: Ledger, facts: NumericsFacts, slug: str, index: int, row_of: Locate) -> Trail | None:
    """How the first fault was found; None where no node is beyond tolerance by itself.

    Args:
        ledger: of the record.
        facts: of the comparison.
        slug: the target as a part of ids.
        index: place of the target in the report.
        row_of: name of a node -> id of its row.
    """
    fault = facts.first_fault
    if fault is None:
        return None
    steps = [Step("node", fault.block, row_of(fault.block))]
    if fault.fragment:
        steps.append(Step("fragment", fault.fragment))
    if fault.op:
        steps.append(Step("operator", fault.op))
    found = [
        Stat(fault.metric.replace("_", " "), ledger.cell("/first_fault/value", "number")),
        Stat("allowed", ledger.cell("/first_fault/tolerance", "number")),
    ]
    if math.isnan(float(fault.value)):  # a failure: nothing was measured
        found = []
    key = f"numerics--{slug}--fault"
    return Trail(
        id=key,
        title="First fault",
        steps=steps,
        found=found,
        detail=fault.detail or ("" if fault.fragment else "The search did not go below the node."),
        script=_script(fault.repro, f"{key}--script", index, fault.op or fault.fragment or fault.block),
    )


def _script(text: str, key: str, index: int, what: str) -> Script | None:
    if not text.strip():
        return None
    lines = text.splitlines()
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in lines[:_MOST_LINES]:
        told = clean(line, LINE_LIMIT)
        if len(told) > room:
            break
        shown.append(told)
        room -= len(told) + 1
    whole = len(shown) == len(lines) and all(len(line) <= LINE_LIMIT for line in lines)
    cut = (
        ""
        if whole
        else f"The first {exact_text(len(shown))} of {exact_text(len(lines))} lines; long ones cut."
    )
    command = f"jq -r .targets[{index}].{_PLACE} report.json > fault.py && python fault.py"
    return Script(
        id=key,
        caption=f"Script that shows {clean(what, 80)} again",
        text="\n".join(shown),
        cut=cut,
        command=command,
    )
