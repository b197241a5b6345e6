"""Can the results be trusted? The answer of a comparison, with one sentence of evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from day0.tasks.numerics.record import Block, FirstFault, NumericsFacts, NumericsRecord
from day0.tasks.verdict import Verdict

from .records import leading_message
from .self_test import misses
from .words import exact_text, listed, number_text, percent_text, plural, sentence

Answer = tuple[str, str]
_UNCHECKED = "the reference itself is not verified"


def results_answer(numerics: NumericsRecord | None) -> Answer:
    """`yes`, `no`, `partly` or `unverified`, and why.

    A reference that is wrong makes all else void; one that is not verified leaves no more than faults.
    """
    if numerics is None:
        return "unverified", "The numerics stage did not run."
    found = _wrong(numerics) or _nothing(numerics)
    if found is not None:
        return found
    facts = numerics.facts
    told = _within(facts)
    if facts.reference_check.state != "pass":
        return "unverified", sentence(f"{told}, but {_UNCHECKED}{_because(facts)}")
    missing = _missing(numerics)
    if missing:
        return "partly", sentence(f"{told}; {missing}")
    if facts.logits is None:
        return "yes", sentence(told)
    agreement = f"top-1 agreement {percent_text(facts.logits.top1)}"
    return "yes", f"{told}; {agreement} over {plural(facts.logits.positions, 'position')}."


def _wrong(numerics: NumericsRecord) -> Answer | None:
    facts = numerics.facts
    if facts.reference_check.state == "fail":
        told = "nothing compared with it can be trusted"
        return "no", sentence(f"the reference itself is wrong, so {told}{_because(facts)}")
    doubt = "" if facts.reference_check.state == "pass" else f"; {_UNCHECKED}"
    if facts.first_fault is not None:
        return "no", f"{_fault(facts.first_fault)}{doubt}."
    strange = [router for router in facts.routing if router.unexplained > 0]
    if strange:
        count = exact_text(sum(router.unexplained for router in strange))
        told = f"{count} tokens went to other experts than rounding explains, first at {strange[0].name}"
        return "no", sentence(f"{told}{doubt}")
    wrong = [block for block in facts.blocks if block.verdict == "fail"]
    if wrong or numerics.verdict is Verdict.FAIL:
        return "no", sentence(leading_message(numerics.findings) or f"beyond tolerance: {_named(wrong)}")
    return None


def _fault(fault: FirstFault) -> str:
    if math.isnan(float(fault.value)):
        return f"{fault.block} is the first node at fault: {fault.detail.rstrip('.')}"
    inside = f" ({fault.op or fault.fragment})" if fault.op or fault.fragment else ""
    return (
        f"{fault.block}{inside} is the first node beyond tolerance by itself: {fault.metric} "
        f"{number_text(fault.value)} against {number_text(fault.tolerance)} allowed"
    )


def _nothing(numerics: NumericsRecord) -> Answer | None:
    blocks = numerics.facts.blocks
    if any(block.verdict != "unverified" for block in blocks):
        return None
    return "unverified", sentence(leading_message(numerics.findings) or "no node was compared")


def _within(facts: NumericsFacts) -> str:
    compared = sum(block.verdict != "unverified" for block in facts.blocks)
    whole = plural(len(facts.blocks), "node")
    return f"{exact_text(compared)} of {whole} within tolerance of {facts.reference}"


def _missing(numerics: NumericsRecord) -> str:
    """What is not known although nothing speaks against it; empty where all is."""
    facts = numerics.facts
    open_blocks = [block for block in facts.blocks if block.verdict == "unverified"]
    if open_blocks:
        return f"not compared: {_named(open_blocks)}"
    lost = facts.manifest.expected - facts.manifest.seen
    if lost > 0:
        return f"{exact_text(lost)} of {plural(facts.manifest.expected, 'call')} of nodes were not captured"
    if facts.images is not None and facts.images.state == "fail":
        off = [result for result in facts.images.results if result.state == "fail"]
        return f"the features of {listed([result.name for result in off])} are off: {off[0].reason}"
    if facts.self_test is not None and misses(facts.self_test):
        return f"bugs put in on purpose were missed: {listed(misses(facts.self_test))}"
    if facts.self_test is not None and facts.self_test.observer is False:
        return "the target's output is another when it is captured"
    if numerics.verdict in (Verdict.UNVERIFIED, Verdict.BLOCKED):
        return leading_message(numerics.findings).rstrip(". ;") or f"the stage is {numerics.verdict}"
    return ""


def _because(facts: NumericsFacts) -> str:
    detail = facts.reference_check.detail.strip().rstrip(".")
    return f" ({detail})" if detail else ""


def _named(blocks: Sequence[Block]) -> str:
    return listed([block.name for block in blocks], 2)
