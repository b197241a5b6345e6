"""Report -> everything the page shows, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import Report
from .coverage import coverage_section
from .inventory import inventory_section
from .ledger import UNSOURCED
from .limitations import Limitation, is_note, limitations
from .limits import WORST_ROWS, rows_per_table
from .minimal import minimal_section
from .numerics import numerics_section
from .overview import Overview, overview
from .parts import Section, Table
from .plan import plan_section
from .provenance import provenance_tables
from .requirements import Requirement, requirements
from .scale import scale_section


@dataclass(frozen=True)
class Page:
    """What the template is given.

    Attributes:
        report: the report itself, for its few plain fields.
        overview: the first screen.
        limitations: the worst findings that somebody has to act on.
        more_limitations: number of those left out.
        notes: findings that nobody has to act on.
        requirements: what has to be validated.
        sections: one a stage, overview to detail.
        provenance: environment and origin.
    """

    report: Report
    overview: Overview
    limitations: Sequence[Limitation]
    more_limitations: int
    notes: Sequence[Limitation]
    requirements: Sequence[Requirement]
    sections: Sequence[Section]
    provenance: Sequence[Table]


def unsourced_blocks(page: Page) -> Sequence[str]:
    """Ids of the blocks that show a number whose source no record names."""
    return [
        block.id
        for section in page.sections
        for block in section.blocks
        if any(UNSOURCED in source for _, source in block.sources)
    ]


def build_page(report: Report) -> Page:
    """The page of a report; a pure function of it."""
    limit = rows_per_table(len(report.targets))
    found = limitations(report)
    acting = [item for item in found if not is_note(item)]
    stages = (coverage_section, minimal_section, numerics_section, plan_section, scale_section)
    sections = [inventory_section(report, limit)]
    if report.targets:
        sections += [build(report, limit) for build in stages]
    return Page(
        report=report,
        overview=overview(report, found),
        limitations=acting[:WORST_ROWS],
        more_limitations=max(0, len(acting) - WORST_ROWS),
        notes=[item for item in found if is_note(item)][:WORST_ROWS],
        requirements=requirements(report),
        sections=sections,
        provenance=provenance_tables(report),
    )
