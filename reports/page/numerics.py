"""The numerics section: how far each node of the target is from the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from day0.tasks.numerics.record import NumericsFacts, NumericsRecord

from ..model import Report, TargetResult
from ..words import bytes_text, exact_text, listed, plural
from .blocks import absent_block, reused, target_slug, why_nothing
from .depth_axes import Locate
from .depth_figure import error_figure, errors
from .depth_reading import reading
from .gain_figure import gain_figure
from .ledger import Ledger
from .numerics_check import check_notice
from .numerics_fault import fault_trail, measured
from .numerics_images import images_group
from .numerics_nodes import chosen_places, node_id, node_tables
from .numerics_output import output_group
from .numerics_precision import precision_group
from .numerics_range import range_group
from .numerics_routing import routing_group
from .numerics_self_test import self_test_group
from .numerics_training import training_group
from .parts import Block, Figure, Group, Notice, Quote, Section, Stat

_LOG_LINES = 30


def numerics_section(report: Report, limit: int) -> Section:
    """Error by depth, the first fault, routing, the output, and how far the gate itself can be trusted."""
    about = (
        "Every node of the whole model against the reference, in units of the rounding noise that "
        "the target's own precision explains."
    )
    blocks = [
        _block(report, index, result, result.stages.numerics, limit)
        if result.stages.numerics
        else absent_block("numerics", result)
        for index, result in enumerate(report.targets)
    ]
    return Section(id="stage-numerics", title="Numerics", about=about, blocks=blocks)


def _block(report: Report, index: int, result: TargetResult, record: NumericsRecord, limit: int) -> Block:
    ledger, facts, slug = Ledger(record), record.facts, target_slug(result)
    shown = {facts.blocks[place].name for place in chosen_places(facts, limit)}
    failed = record.verdict not in ("pass", "warn")
    rest = f"report.json#/targets/{index}/stages/numerics/facts"

    def row_of(name: str) -> str:
        return node_id(slug, name) if name in shown else ""

    return Block(
        id=f"numerics--{slug}",
        title=result.target,
        verdict=record.verdict,
        lead=_lead(facts) if facts.blocks else why_nothing(record, "No node was compared."),
        notices=list(_notices(facts)),
        stats=_stats(ledger, record) if facts.blocks else (),
        quotes=_quotes(facts),
        trail=fault_trail(ledger, facts, slug, index, row_of),
        figures=_figures(facts, slug, row_of),
        tables=list(node_tables(ledger, facts, slug, f"{rest}/blocks", limit)),
        groups=list(_groups(ledger, record, slug, rest, limit)),
        log=record.observations.worker_log[-_LOG_LINES:] if failed else (),
        sources=ledger.sources,
        reused=reused(report, "numerics", result),
    )


def _groups(ledger: Ledger, record: NumericsRecord, slug: str, rest: str, limit: int) -> Iterator[Group]:
    facts = record.facts
    for group in (
        routing_group(ledger, facts, slug, f"{rest}/routing", limit),
        output_group(ledger, record, slug, rest, limit),
        images_group(ledger, facts, slug),
        range_group(ledger, facts, slug),
        self_test_group(ledger, facts, slug, f"{rest}/self_test/matrix", limit),
        precision_group(ledger, facts, slug, f"{rest}/precision/rows", limit),
        training_group(ledger, facts, slug, f"{rest}/training/blocks", limit),
    ):
        if group is not None:
            yield group


def _notices(facts: NumericsFacts) -> Iterator[Notice]:
    if not facts.blocks:
        return
    yield check_notice(facts.reference_check)
    lost, named = facts.manifest.expected - facts.manifest.seen, facts.manifest.missing
    if lost > 0 or named:
        where = f": {listed([str(name) for name in named], 3)}" if named else ""
        calls = f"{exact_text(lost)} of {plural(facts.manifest.expected, 'call')}"
        yield Notice("unverified", f"{calls} of nodes were not captured, so nothing is known of them{where}.")
    if facts.self_test is not None and facts.self_test.observer is False:
        told = "The target's output is another when it is captured: what is compared is not what it computes."
        yield Notice("fail", told)


def _lead(facts: NumericsFacts) -> str:
    fault = facts.first_fault
    held = f"held against {facts.reference}, noise from {facts.noise}"
    if fault is not None:
        failed = math.isnan(float(fault.value))
        return (
            f"{fault.block} is the first node {'that failed' if failed else 'beyond tolerance by itself'}: "
            f"{measured(fault)}; {held}."
        )
    good = sum(node.verdict == "pass" for node in facts.blocks)
    told = f"{exact_text(good)} of {plural(len(facts.blocks), 'node')} within tolerance; {held}."
    # Without any distance there is no figure, and what it would say is said here.
    exact = good and not any(value for block in facts.blocks for value in errors(block))
    return f"{told} {reading(facts.blocks)}" if exact else told


def _quotes(facts: NumericsFacts) -> Sequence[Quote]:
    if facts.says is None:
        return ()
    return (
        Quote("Prompt", facts.says.prompt),
        Quote("Reference", facts.says.reference),
        Quote("Target", facts.says.target),
    )


def _stats(ledger: Ledger, record: NumericsRecord) -> Sequence[Stat]:
    facts, seen = record.facts, record.observations
    stats = [Stat("Tokens", ledger.cell("/tokens", "exact"), "compared at every node")]
    if facts.logits is not None:
        over = f"over {plural(facts.logits.positions, 'position')}"
        stats += [
            Stat("Top-1 agreement", ledger.cell("/logits/top1", "percent"), over),
            Stat("Top-5 overlap", ledger.cell("/logits/top5", "percent"), "mean"),
            Stat("KL divergence", ledger.cell("/logits/kl", "number"), "nats, mean"),
            Stat("Decisive differences", ledger.cell("/logits/decisive", "exact"), "beyond the noise"),
        ]
    if facts.manifest.expected:
        captured = ledger.cell("/manifest/seen", "exact")
        stats.append(Stat("Captured", captured, f"of {plural(facts.manifest.expected, 'call')} of nodes"))
    if facts.bytes_read:
        stats.append(Stat("Weights read", ledger.cell("/bytes_read", "bytes"), "from the checkpoint"))
    if seen.peak_memory:
        bound = f"of {bytes_text(seen.memory_bound)} allowed" if seen.memory_bound else "all processes"
        stats.append(Stat("Peak memory", ledger.measured(seen.peak_memory, "bytes"), bound))
    elif seen.peak_bytes:
        stats.append(Stat("Peak memory", ledger.measured(seen.peak_bytes, "bytes"), "process tree"))
    if seen.seconds:
        stats.append(Stat("Time", ledger.measured(seen.seconds, "seconds"), "of the comparison"))
    return stats


def _figures(facts: NumericsFacts, slug: str, row_of: Locate) -> Sequence[Figure]:
    first = facts.first_fault.block if facts.first_fault else ""
    drawn = (
        error_figure(facts.blocks, f"numerics--{slug}--error", row_of, first),
        gain_figure(facts.blocks, f"numerics--{slug}--gain", row_of),
    )
    return [figure for figure in drawn if figure is not None]
