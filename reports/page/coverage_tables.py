"""The tables of the coverage section: what is new, gaps, alternatives, kernels, every operator; its texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.tasks.coverage.record import CoverageFacts, CoverageRecord, CoveredOp, Gap

from ..words import listed
from .coverage_kinds import kind_table, size_table
from .ledger import Ledger
from .limits import pick
from .parts import Cell, Column, Passage, Row, Table
from .text import element_id

# Status of an operator -> the verdict whose colour and shape it takes, best first.
STATUS_LOOK = {
    "native": "pass",
    "decomposed": "warn",
    "fallback": "warn",
    "slow": "warn",
    "unknown": "unverified",
    "double_fault": "fail",
    "missing": "fail",
    "wrong": "fail",
    "crash": "fail",
    "hang": "fail",
}
_ORDER = list(STATUS_LOOK)
_UNFOLDED = 12
_TEXTS = 12
_SHORT = 30


def coverage_tables(
    ledger: Ledger, record: CoverageRecord, slug: str, index: int, limit: int
) -> Iterable[Table]:
    """The block's tables in the order in which a person needs them, empty ones left out."""
    facts = record.facts
    if facts.new_since_registry:
        yield _new_table(facts, slug, index, limit)
    if facts.gaps:
        yield _gap_table(ledger, facts, slug, index, limit)
    if facts.alternatives:
        yield _alternative_table(ledger, facts, slug)
    if facts.kinds:
        yield kind_table(ledger, facts, record.observations.kinds, slug)
    if facts.dynamic:
        yield size_table(ledger, facts, slug)
    if facts.kernels:
        yield _kernel_table(facts, slug, index, limit)
    if facts.ops:
        yield _op_table(ledger, facts, slug, index, limit)


def passages(facts: CoverageFacts, slug: str) -> Sequence[Passage]:
    """Script and letter of each gap, those with the largest share of the work."""
    found = []
    for gap in facts.gaps[:_TEXTS]:
        name = f"{gap.op}({','.join(gap.dtypes)})" + (f" [{gap.variant}]" if gap.variant else "")
        if gap.repro:
            found.append(Passage(f"coverage--{slug}--repro-{gap.id}", f"Script that shows {name}", gap.repro))
        if gap.letter:
            letter = gap.letter.partition("\nA script that shows it alone")[0]
            found.append(
                Passage(f"coverage--{slug}--letter-{gap.id}", f"Text for the owner of {name}", letter)
            )
    return found


def _new_table(facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    known = {f"{op.op}({','.join(op.dtypes)})": op for op in facts.ops}
    rows = []
    for name in facts.new_since_registry[:limit]:
        op = known.get(name)
        rows.append(
            Row(
                [
                    Cell(name, code=True, status=_look(op.status) if op else ""),
                    Cell(op.status if op else ""),
                    Cell(op.module if op else "", code=True),
                    Cell(op.evidence if op else ""),
                ]
            )
        )
    return Table(
        id=f"coverage--{slug}--new_since_registry",
        caption="New to the registry",
        columns=[Column("Operator"), Column("Status now"), Column("First called in"), Column("Evidence")],
        rows=rows,
        total=len(facts.new_since_registry),
        rest=_where(index, "new_since_registry"),
        folded=len(rows) > _UNFOLDED,
    )


def _gap_table(ledger: Ledger, facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    crosses = any(gap.bytes_per_call for gap in facts.gaps)
    crossing = Column("Crossing", True, help="bytes between device and host for one call")
    rows = [
        Row(
            [
                Cell(gap.op, code=True, status=_gap_look(gap), below=_taken(gap.dtypes, gap.variant)),
                Cell(gap.status, whole=True, below=f"in the {gap.layer}" if gap.layer else ""),
                ledger.cell(f"/gaps/{place}/impact", "percent"),
                Cell(
                    gap.workaround or "none known",
                    code=bool(gap.workaround),
                    whole=len(gap.workaround) < _SHORT,
                    below=gap.checked or ("not tried" if gap.workaround else ""),
                ),
                ledger.cell(f"/gaps/{place}/launches", "exact"),
                *([ledger.cell(f"/gaps/{place}/bytes_per_call", "bytes")] if crosses else []),
                Cell(gap.evidence),
            ],
            id=element_id("coverage", slug, "gap", gap.op, ",".join(gap.dtypes), *_given(gap.variant)),
            status=_gap_look(gap),
        )
        for place, gap in enumerate(facts.gaps[:limit])
    ]
    return Table(
        id=f"coverage--{slug}--gaps",
        caption="Gaps, the largest share of work first",
        columns=[
            Column("Operator"),
            Column("Status", help="and the layer of the stack that is at fault"),
            Column("Share of work", True, help="of one token, prefill and decode alike"),
            Column("Way around", help="and how it was tried"),
            Column("Launches more", True, help="kernels that one rebuilt call starts, beyond the one"),
            *([crossing] if crosses else []),
            Column("Evidence"),
        ],
        rows=rows,
        total=len(facts.gaps),
        rest=_where(index, "gaps"),
        folded=len(rows) > _UNFOLDED,
    )


def _gap_look(gap: Gap) -> str:
    return "warn" if gap.checked else _look(gap.status)


def _alternative_table(ledger: Ledger, facts: CoverageFacts, slug: str) -> Table:
    rows = []
    for place, one in enumerate(facts.alternatives):
        options = "&".join(f"{key}={value}" for key, value in sorted(one.options.items()))
        gaps = [*one.gaps, *(f"{op} (unknown)" for op in one.unknown)]
        look = (
            "" if one.reason else "pass" if not gaps and not one.rebuilt else "warn" if not gaps else "fail"
        )
        rows.append(
            Row(
                [
                    Cell(options or "as named", code=bool(options), status=look),
                    Cell("chosen" if one.chosen else "", whole=True),
                    ledger.cell(f"/alternatives/{place}/impact", "percent") if not one.reason else Cell(""),
                    Cell(listed(gaps, 3) if gaps else one.reason or "none"),
                    Cell(listed(list(one.rebuilt), 3) if one.rebuilt else ""),
                    Cell(one.checked),
                ],
                status=look if one.chosen else "",
            )
        )
    return Table(
        id=f"coverage--{slug}--alternatives",
        caption="Implementations that the model brings itself",
        columns=[
            Column("Options of the target"),
            Column("Choice"),
            Column("Work at risk", True),
            Column("Gaps"),
            Column("Rebuilt"),
            Column("Tried"),
        ],
        rows=rows,
        folded=len(rows) > _UNFOLDED,
    )


def _kernel_table(facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    return Table(
        id=f"coverage--{slug}--kernels",
        caption="Kernels outside the dispatcher",
        columns=[Column("Kernel"), Column("Required by"), Column("Made for"), Column("Without it")],
        rows=[
            Row(
                [
                    Cell(kernel.name, code=True),
                    Cell(listed(list(kernel.required_by), 3)),
                    Cell(", ".join(kernel.architectures) or "not known"),
                    Cell(kernel.fallback or "does not run"),
                ]
            )
            for kernel in facts.kernels[:limit]
        ],
        total=len(facts.kernels),
        rest=_where(index, "kernels"),
        folded=True,
    )


def _op_table(ledger: Ledger, facts: CoverageFacts, slug: str, index: int, limit: int) -> Table:
    rows = []
    for place in pick(len(facts.ops), limit, lambda place: _badness(facts.ops[place])):
        op = facts.ops[place]
        rows.append(
            Row(
                [
                    Cell(op.op, code=True, status=_look(op.status), below=_taken(op.dtypes, op.variant)),
                    Cell(op.status, whole=True, below=op.grade),
                    ledger.cell(f"/ops/{place}/calls", "exact"),
                    ledger.cell(f"/ops/{place}/impact", "percent"),
                    Cell(listed(list(op.phases), 4)),
                    Cell(op.module, code=True),
                ],
                id=element_id("coverage", slug, op.op, ",".join(op.dtypes), *_given(op.variant)),
            )
        )
    return Table(
        id=f"coverage--{slug}--ops",
        caption="All operators",
        columns=[
            Column("Operator"),
            Column("Status", help="and the grade of its evidence"),
            Column("Calls", True),
            Column("Share of work", True),
            Column("Phases"),
            Column("First called in"),
        ],
        rows=rows,
        total=len(facts.ops),
        rest=_where(index, "ops"),
        folded=True,
    )


def _badness(op: CoveredOp) -> tuple[int, float]:
    rank = _ORDER.index(op.status) if op.status in _ORDER else len(_ORDER)
    return (-rank, -float(op.impact))


def _taken(dtypes: Sequence[str], variant: str) -> str:
    """What an entry is for: `bf16, int64, with enable_gqa`."""
    return ", ".join([*dtypes, *([f"with {variant.replace(',', ', ')}"] if variant else [])])


def _given(variant: str) -> Sequence[str]:
    return [variant] if variant else []


def _look(status: str) -> str:
    return STATUS_LOOK.get(status, "unverified")


def _where(index: int, name: str) -> str:
    return f"report.json#/targets/{index}/stages/coverage/facts/{name}"
