"""The gaps of the record: each with the layer at fault, the way around, a script and a text for its owner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from day0.adapters.base.dtypes import BITS
from day0.adapters.base.operator_call import OperatorCall

from .judgement import Judgement
from .low_precision import PRODUCTS, WAY
from .question import Question
from .record import CoveredOp, Gap
from .statuses import RUNS, State, covered_ops, grouped, key_of, plain_gap, worst

SCRIPTED = 40
"""Gaps that get a script and a text, those with the largest share of the work: a target that lacks nearly
everything needs none for each operator."""


def gap_entries(
    ops: Sequence[CoveredOp], judgement: Judgement, question: Question
) -> list[tuple[CoveredOp, Gap]]:
    """Every operator that is not native, the largest share of the work first.

    Where other implementations were chosen, what these are lacking stands beside what the target as named
    lacks.
    """
    named = grouped(judgement.named.states)
    best = grouped(judgement.best.states) if judgement.switched else {}
    more = [] if not best else covered_ops(judgement.best.states, question.spec)
    listed = [(entry, named) for entry in ops if entry.status != "native"]
    known = {key_of(entry) for entry in ops}
    listed += [(entry, best) for entry in more if entry.status != "native" and key_of(entry) not in known]
    listed.sort(key=lambda pair: (-pair[0].impact, key_of(pair[0])))
    return [
        (entry, _gap(entry, groups[key_of(entry)], judgement, question, scripted=place < SCRIPTED))
        for place, (entry, groups) in enumerate(listed)
    ]


def stored_gaps(low: Sequence[CoveredOp], ops: Sequence[CoveredOp]) -> list[tuple[CoveredOp, Gap]]:
    """What the stored precision asks for and the target does not run; dequantised weights are the way around.

    Args:
        low: operators of the stored precision.
        ops: those of the dequantised model.
    """
    products = [op for op in ops if op.op in PRODUCTS]
    runs = bool(products) and all(op.status in RUNS for op in products)
    checked = "the dequantised products run on the target" if runs else ""
    return [
        (entry, plain_gap(entry).model_copy(update={"workaround": WAY, "checked": checked}))
        for entry in low
        if entry.status != "native"
    ]


def _gap(
    entry: CoveredOp, states: Sequence[State], judgement: Judgement, question: Question, *, scripted: bool
) -> Gap:
    state, key = worst(states), key_of(entry)
    stated = question.description.owner if entry.layer not in ("", "worker") else ""
    gap = plain_gap(entry).model_copy(update={"owner": stated or entry.owner})
    if entry.status == "unknown":
        return gap
    around, checked, cost = judgement.way_around(key)
    leaves = dict(state.rebuilt.leaves) if state.rebuilt else {}
    call = _call(state)
    gap = gap.model_copy(
        update={
            "workaround": around,
            "checked": checked,
            "error": cost.error,
            "leaves": leaves,
            "launches": state.rebuilt.launches if state.rebuilt and not around.startswith("cast:") else 0,
            "bytes_per_call": crossing(call) if entry.status in ("fallback", "double_fault") else 0,
        }
    )
    if not scripted:
        return gap
    from ..operator_script import way_of
    from .letters import letter
    from .repro import script
    from .shown import shown

    seen = shown(state)
    way = way_of(question.spec, question.description)
    gap = gap.model_copy(update={"repro": script(seen, question.spec, entry.status, way)})
    about = {"type": _model_type(question.config), "phases": ", ".join(entry.phases), "inputs": seen.spread}
    text = letter(gap, seen.call, question.spec, question.description.fingerprint, about)
    return gap.model_copy(update={"letter": text})


def _call(state: State) -> OperatorCall:
    """The call that shows it: the very one that a row refuses, else the one that was replayed first."""
    refused = state.refused
    if refused is not None:
        for call in state.need.calls:
            if call.signature.startswith(refused.mark) and refused.mark:
                return call
    return state.need.example


def crossing(call: OperatorCall) -> int:
    """Bytes of one call's tensors, and of its result, taken to be as large as the largest of them."""
    sizes = [
        math.prod(shape) * BITS.get(dtype, 64) // 8
        for shape, dtype in zip(call.shapes, call.dtypes, strict=True)
    ]
    return sum(sizes) + max(sizes, default=0)


def _model_type(config: Mapping[str, object]) -> str:
    return str(config.get("model_type", "") or "not named")


def side_files(gaps: Sequence[Gap]) -> Mapping[str, tuple[str, str]]:
    """Name in the record -> file name and content of each script and text."""
    found: dict[str, tuple[str, str]] = {}
    for gap in gaps:
        if gap.repro:
            found[f"repro {gap.id}"] = (f"{gap.id}.py", gap.repro)
        if gap.letter:
            found[f"letter {gap.id}"] = (f"{gap.id}.md", gap.letter)
    return found
