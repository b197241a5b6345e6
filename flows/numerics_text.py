"""The numerics record as lines for a terminal: the reference first, then nodes, first fault, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from day0.reports.page.numerics_check import check_notice
from day0.reports.page.numerics_fault import measured
from day0.reports.page.numerics_images import judged as images_judged
from day0.reports.page.numerics_images import line as images_line
from day0.reports.page.numerics_precision import policy_words
from day0.reports.page.numerics_range import judged as range_judged
from day0.reports.page.numerics_routing import judged as routing_judged
from day0.reports.page.numerics_training import lead_of, look_of
from day0.reports.self_test import judged as self_test_judged
from day0.reports.self_test import outcome
from day0.reports.words import exact_text, number_text, percent_text, plural
from day0.tasks.numerics.record import Block, FirstFault, Logits, NumericsFacts, NumericsRecord

_ALL_UP_TO = 40
_MOST_ROWS = 20
_REASON = 160
"""Characters of a reason in one line; the record has all of it."""


def numerics_lines(record: NumericsRecord) -> Iterator[str]:
    """What was held against what, whether that can be trusted, and what came of it."""
    facts = record.facts
    yield f"reference {facts.reference or 'none'}, noise {facts.noise or 'none'}, {facts.tokens} tokens"
    if facts.blocks:
        notice = check_notice(facts.reference_check)
        yield f"{notice.look:<10} {notice.text}"
        yield from _captured(facts)
        yield from _nodes(facts.blocks)
    if facts.first_fault is not None:
        yield from _fault(facts.first_fault)
    if facts.routing:
        yield from _routing(facts)
    yield from _output(facts)
    if told := images_line(facts):
        yield f"{images_judged(facts)[0]:<10} images: {told}"
    look, told = range_judged(facts)
    if told:
        yield f"{look:<10} {told}"
    yield from _asked_for(facts)
    if facts.says is not None:
        says = facts.says
        yield f"{says.prompt!r}: the reference says {says.reference!r}, the target {says.target!r}"


def _captured(facts: NumericsFacts) -> Iterator[str]:
    manifest = facts.manifest
    if manifest.seen < manifest.expected:
        named = f": {', '.join(str(name) for name in manifest.missing[:3])}" if manifest.missing else ""
        counts = f"{exact_text(manifest.seen)} of {plural(manifest.expected, 'call')} of nodes captured"
        yield f"{'unverified':<10} {counts}{named}"


def _nodes(blocks: Sequence[Block]) -> Iterator[str]:
    """All nodes where they are few, else those that do not pass, and how many there are of each verdict."""
    counts = Counter(block.verdict for block in blocks)
    told = ", ".join(f"{exact_text(count)} {verdict}" for verdict, count in counts.items())
    yield f"{plural(len(blocks), 'node')}: {told}"
    shown = blocks if len(blocks) <= _ALL_UP_TO else [block for block in blocks if block.verdict != "pass"]
    rows = [list(group) for _, group in groupby(shown, key=_row_of)]
    limit = len(rows) if len(blocks) <= _ALL_UP_TO else _MOST_ROWS
    for same in rows[:limit]:
        if len(same) > 1:
            yield f"{same[0].verdict:<10} {_named(same, len(blocks))}: {same[0].reason}"
        else:
            yield _row(same[0])
    if len(rows) > limit:
        left = sum(len(same) for same in rows[limit:])
        yield f"{'':<10} and {exact_text(left)} more that do not pass"


def _row_of(block: Block) -> tuple[str, ...]:
    """Equal for nodes beside each other of which nothing was measured, for one reason."""
    if block.local is None and block.propagated is None and block.reason:
        return block.verdict, block.reason
    return (block.name,)


def _named(blocks: Sequence[Block], total: int) -> str:
    if len(blocks) == total:
        return f"all {plural(total, 'node')}"
    return f"{plural(len(blocks), 'node')} from {blocks[0].name} to {blocks[-1].name}"


def _row(block: Block) -> str:
    local, onward = block.local, block.propagated
    return (
        f"{block.verdict:<10} {block.name:<28} "
        f"rel. L2 {number_text(local.rel_l2 if local else None):>9} by itself, "
        f"{number_text(local.ratio if local else None):>6} times the noise, "
        f"{number_text(onward.rel_l2 if onward else None):>9} in the stream  {block.reason[:_REASON]}"
    ).rstrip()


def _fault(fault: FirstFault) -> Iterator[str]:
    way = " > ".join(part for part in (fault.block, fault.fragment, fault.op) if part)
    yield f"first fault: {way}, {measured(fault)}"
    if fault.detail:
        yield f"  {fault.detail}"
    if fault.repro:
        lines = plural(len(fault.repro.splitlines()), "line")
        yield f"  script of {lines}: the same command with --json | jq -r .first_fault.repro > fault.py"


def _routing(facts: NumericsFacts) -> Iterator[str]:
    look, told = routing_judged(facts.routing)
    yield f"{look:<10} routing: {told}"
    strange = [router for router in facts.routing if router.unexplained > 0]
    for router in strange[:_MOST_ROWS]:
        yield (
            f"  {router.name:<28} {router.flips} flips of {exact_text(router.tokens)} tokens: "
            f"{router.near_tie} near-ties, {router.unexplained} unexplained"
        )


def _output(facts: NumericsFacts) -> Iterator[str]:
    for phase, logits in (("prefill", facts.logits), ("decode", facts.decode)):
        if logits is None:
            continue
        yield f"{phase}: {_agreement(logits)} over {plural(logits.positions, 'position')}"
        for prompt in logits.prompts:
            if prompt.reason:
                yield f"  {prompt.name:<12} did not run: {prompt.reason[:_REASON]}"
            else:
                worst = f", worst at {prompt.worst_block}" if prompt.worst_block else ""
                kl, top1 = number_text(prompt.kl), percent_text(prompt.top1)
                yield f"  {prompt.name:<12} {prompt.tokens:>6} tokens, top-1 {top1}, KL {kl} nats{worst}"


def _agreement(logits: Logits) -> str:
    decisive = f", {logits.decisive} decisive differences" if logits.decisive else ""
    return (
        f"top-1 agreement {percent_text(logits.top1)}, "
        f"mean overlap of the top five {percent_text(logits.top5)}, "
        f"KL {number_text(logits.kl)} nats{decisive}"
    )


def _asked_for(facts: NumericsFacts) -> Iterator[str]:
    """The parts that a person has to ask for."""
    task = facts.task
    if task is not None and (task.reason or not task.items):
        named = f"task {task.name}".rstrip()
        yield f"{'unverified':<10} {named}: {task.reason or 'not done'}"
    elif task is not None:
        sides = f"reference {percent_text(task.reference)}, target {percent_text(task.target)}"
        yield (
            f"task {task.name}, {plural(task.items, 'item')}: {sides}, difference "
            f"{_points(task.difference)} points (95 % interval {_points(task.low)} to {_points(task.high)})"
        )
    if facts.self_test is not None:
        look, told = self_test_judged(facts.self_test)
        yield f"{look:<10} self-test: {told}"
        for bug in facts.self_test.matrix:
            effect = f"effect {number_text(bug.effect)} times the noise"
            told = bug.reason if bug.applicability == "no" else effect
            by = f", by {bug.by} in {bug.dtype}" if bug.by else ""
            yield f"  {outcome(bug):<10} {bug.bug:<26} {told}{by}"
    if facts.precision is not None:
        yield f"precision policy: {policy_words(facts.precision)}"
    if facts.training is not None:
        yield f"{look_of(facts.training):<10} training: {lead_of(facts.training)}"


def _points(share: float | int | str) -> str:
    return number_text(float(share) * 100)
