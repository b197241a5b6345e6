"""One stage's record as a few lines for a terminal; inventory has a page of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from day0.reports.page.repro import is_command
from day0.reports.words import (
    bytes_text,
    exact_text,
    number_text,
    percent_text,
    seconds_text,
)
from day0.tasks.coverage.record import CoverageFacts, CoverageRecord
from day0.tasks.minimal.record import MinimalRecord
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.outcomes import RAN
from day0.tasks.plan.record import PlanRecord
from day0.tasks.record import StageRecord
from day0.tasks.scale.record import ScaleRecord
from day0.tasks.verdict import Verdict

from .numerics_text import numerics_lines

_MOST_ROWS = 20
_REASON = 120
"""Characters of a reason in one line; the record has all of it."""


def stage_lines(record: StageRecord, store: str = "") -> Iterator[str]:
    """Verdict, what the stage found out, and what a person may have to act on.

    Args:
        record: of any stage but inventory.
        store: where the run store lies, before the names of files in it.
    """
    on = f" on {record.target}" if record.target else ""
    yield f"{record.stage}{on}: {record.verdict.value}"
    for finding in record.findings:
        if finding.verdict is not Verdict.PASS:
            yield f"  {finding.code} {finding.subject.name}: {finding.message}"
            if finding.remedy:
                yield f"         {finding.remedy}"
            command = next((line for line in finding.evidence if is_command(line)), "")
            if command:
                yield f"         {command}"
    yield from (f"  {line}" for line in _facts(record, f"{store}/" if store else ""))


def _facts(record: StageRecord, root: str) -> Iterator[str]:
    if isinstance(record, CoverageRecord):
        yield from _coverage(record, root)
    elif isinstance(record, MinimalRecord):
        yield from _minimal(record)
    elif isinstance(record, NumericsRecord):
        yield from numerics_lines(record)
    elif isinstance(record, PlanRecord):
        yield from _plan(record)
    elif isinstance(record, ScaleRecord):
        yield from _scale(record)


def _coverage(record: CoverageRecord, root: str) -> Iterator[str]:
    facts = record.facts
    if facts.new_since_registry:
        more = len(facts.new_since_registry) - _MOST_ROWS
        shown = ", ".join(facts.new_since_registry[:_MOST_ROWS]) + (f" and {more} more" if more > 0 else "")
        yield f"new to the registry ({len(facts.new_since_registry)}): {shown}"
    counts = ", ".join(f"{number} {status}" for status, number in facts.statuses.items())
    forms = f"{sum(facts.statuses.values())} forms by dtypes and attributes"
    yield (
        f"{facts.overloads} operators in {forms}, {facts.signatures} distinct calls: {counts}"
        if facts.overloads
        else "no operator is known"
    )
    for gap in facts.gaps[:_MOST_ROWS]:
        inside = f" [{gap.variant}]" if gap.variant else ""
        way = gap.workaround or "no way around known"
        tried = f" ({gap.checked})" if gap.checked else " (not tried)" if gap.workaround else ""
        share = f"{percent_text(gap.impact)} of the work"
        yield f"{gap.status:<9} {gap.op} ({', '.join(gap.dtypes)}){inside}, {share}; {way}{tried}"
        files = [f"{name} {root}{path}" for name, path in _files_of(record, gap.id)]
        if files:
            yield f"{'':<9} {'; '.join(files)}"
    for one in facts.alternatives:
        options = "&".join(f"{key}={value}" for key, value in sorted(one.options.items())) or "as named"
        rebuilt = f", {len(one.rebuilt)} rebuilt from others" if one.rebuilt else ""
        risk = f"{len(one.gaps)} gaps, {percent_text(one.impact)} of the work at risk{rebuilt}"
        found = one.reason[:_REASON] or risk
        yield f"{'->' if one.chosen else '  '} {options}: {found}"
    for chosen in facts.chosen:
        yield f"later stages run with {chosen.id}"
    yield from _kinds(facts)


def _files_of(record: CoverageRecord, gap: str) -> Iterator[tuple[str, str]]:
    """What a gap's files are called, and where they lie in the store."""
    for word, name in (("script", "repro"), ("letter", "letter")):
        path = record.files.get(f"{name} {gap}")
        if path:
            yield word, path


def _kinds(facts: CoverageFacts) -> Iterator[str]:
    """What became of one node of each kind: the numbers, and what is not plain about any of them."""
    for phase in dict.fromkeys(kind.phase for kind in facts.kinds):
        counted = Counter(kind.outcome for kind in facts.kinds if kind.phase == phase)
        yield f"kinds of nodes in {phase}: {', '.join(f'{count} {what}' for what, count in counted.items())}"
    for kind in facts.kinds:
        about = f"with {kind.reduced}" if kind.reduced else ""
        if about or kind.outcome != RAN:
            told = "; ".join(filter(None, (about, kind.detail)))
            yield f"{kind.outcome:<9} {kind.node} {kind.phase}: {told}"
    if facts.dynamic:
        answers = Counter(sizes.answer for sizes in facts.dynamic)
        yield f"in other sizes: {', '.join(f'{count} {what}' for what, count in answers.items())}"
    for sizes in facts.dynamic:
        failed = [f"{one.case}: {one.outcome}" for one in sizes.failures]
        if failed or sizes.recompiled:
            anew = [f"compiled anew for {', '.join(sizes.recompiled)}"] if sizes.recompiled else []
            yield f"{sizes.answer:<9} {sizes.node}: {'; '.join([*anew, *failed])}"


def _minimal(record: MinimalRecord) -> Iterator[str]:
    for node in record.facts.nodes:
        yield f"{node.phase:<8} {node.name:<28} {node.outcome} {node.detail}".rstrip()
    if record.facts.load is not None:
        yield f"the target's own loader: {record.facts.load.outcome} {record.facts.load.detail}".rstrip()


def _plan(record: PlanRecord) -> Iterator[str]:
    yield "estimates; nothing was measured on these chips"
    for config in record.facts.recommended:
        yield (
            f"{config.chip}: {config.devices} devices, tensor parallel {config.tensor_parallel}, "
            f"{config.fits}; "
            f"{exact_text(config.max_context)} tokens x {config.concurrency}; limited by {config.limited_by}"
        )
        if config.command:
            yield f"  {config.command}"


def _scale(record: ScaleRecord) -> Iterator[str]:
    for tier in record.facts.tiers:
        yield f"tier {tier.number}, {tier.name}: {tier.outcome}"
        for check in tier.checks:
            yield f"  {check.outcome:<13} {check.name} {check.detail}".rstrip()
    for point in record.observations.growth:
        yield (
            f"batch {point.batch}, {point.length} tokens: "
            f"first token after {seconds_text(point.first_token_seconds)}, "
            f"{number_text(point.tokens_per_second)} tokens/s, {bytes_text(point.memory_bytes)} "
            f"(expected {bytes_text(point.expected_memory_bytes)})"
        )
