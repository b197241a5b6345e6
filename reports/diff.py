"""What differs between two reports: verdicts, findings, facts, versions, numbers per node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Fingerprint, Value
from day0.tasks.finding import Finding
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.record import StageRecord
from day0.tasks.verdict import Verdict, worst

from .change import Change, ChangeKind
from .facts_diff import differences
from .model import Report, TargetResult
from .numerics_diff import numerics_changes
from .numerics_parts_diff import PARTS
from .records import VERDICT_RANK, fingerprint_of, stage_records
from .signatures import Moves, moves
from .strict_json import plain

# Compared by the kinds of change above instead of leaf by leaf.
_OWN_KIND = {"fingerprint", "blocks", "first_fault", "identity", *PARTS}


class Diff(Value):
    """All changes between two runs, in the order of the stages.

    Attributes:
        before: id of the earlier run.
        after: id of the later run.
        changes: empty where both say the same.
    """

    before: str
    after: str
    changes: Sequence[Change]


def diff_reports(before: Report, after: Report, store: RunStore | None = None) -> Diff:
    """Everything that differs between two reports; times and other observations are not compared.

    Args:
        before: the earlier report.
        after: the later one.
        store: in which both runs left their signatures; without it nothing says how far a node moved.
    """
    return Diff(before=before.run, after=after.run, changes=tuple(_changes(before, after, store)))


def _changes(before: Report, after: Report, store: RunStore | None) -> Iterator[Change]:
    if before.model != after.model:
        yield _plain("model", "model", before.model, after.model)
    yield from _identity(before, after)
    yield from _verdict("", "", _whole(before), _whole(after))
    yield from _record("", before.inventory, after.inventory, store)
    earlier = {result.target: result for result in before.targets}
    later = {result.target: result for result in after.targets}
    for name in dict.fromkeys([*earlier, *later]):
        if name not in later:
            text = f"target {name} is gone"
            yield Change(kind="target", target=name, subject=name, before=name, text=text)
        elif name not in earlier:
            text = f"target {name} is new"
            yield Change(kind="target", target=name, subject=name, after=name, text=text)
        else:
            yield from _target(earlier[name], later[name], store)


def _whole(report: Report) -> Verdict:
    """The verdict over what the report holds now: a baseline holds one target out of several."""
    return worst([report.inventory.verdict, *(result.verdict for result in report.targets)])


def _identity(before: Report, after: Report) -> Iterator[Change]:
    earlier, later = before.inventory.facts.identity, after.inventory.facts.identity
    for field in ("revision", "config_digest", "structure_digest", "weights_digest"):
        old, new = getattr(earlier, field), getattr(later, field)
        if old != new:
            yield _plain("revision", field.replace("_", " "), old, new)


def _plain(kind: ChangeKind, subject: str, old: str, new: str, target: str = "") -> Change:
    place = f"{target}: " if target else ""
    text = f"{place}{subject} {old} -> {new}"
    return Change(kind=kind, target=target, subject=subject, before=old, after=new, text=text)


def _target(before: TargetResult, after: TargetResult, store: RunStore | None) -> Iterator[Change]:
    name = after.target
    yield from _verdict(name, "", before.verdict, after.verdict)
    yield from _versions(name, fingerprint_of(before), fingerprint_of(after))
    later = stage_records(after.stages)
    for stage, record in stage_records(before.stages).items():
        other = later[stage]
        if record is not None and other is not None:
            yield from _record(name, record, other, store)
        elif record is not other:
            told = "ran no more" if other is None else "ran for the first time"
            yield Change(
                kind="target", target=name, stage=stage, subject=stage, text=f"{name}: {stage} {told}"
            )


def _versions(target: str, before: Fingerprint | None, after: Fingerprint | None) -> Iterator[Change]:
    if before is None or after is None or before == after:
        return
    earlier = {"family": before.family, **before.exact}
    later = {"family": after.family, **after.exact}
    for name in dict.fromkeys([*earlier, *later]):
        if earlier.get(name) != later.get(name):
            yield _plain("version", name, earlier.get(name, "absent"), later.get(name, "absent"), target)


def _record(target: str, before: StageRecord, after: StageRecord, store: RunStore | None) -> Iterator[Change]:
    place = f"{target}: " if target else ""
    yield from _verdict(target, after.stage, before.verdict, after.verdict)
    yield from _findings(target, after.stage, before.findings, after.findings)
    if before.facts == after.facts:
        return
    earlier, later = _leaf_facts(before), _leaf_facts(after)
    for pointer, subject, old, new in differences(earlier, later):
        named = f" ({subject})" if subject else ""
        text = f"{place}{after.stage} {pointer}{named}: {_short(old)} -> {_short(new)}"
        yield Change(
            kind="fact", target=target, stage=after.stage, subject=pointer, before=old, after=new, text=text
        )
    if isinstance(before, NumericsRecord) and isinstance(after, NumericsRecord):
        moved = moves(store, before, after) if store is not None else Moves()
        yield from numerics_changes(target, before, after, moved)


def _leaf_facts(record: StageRecord) -> Mapping[str, Any]:
    return {key: value for key, value in plain(record.facts).items() if key not in _OWN_KIND}


def _verdict(target: str, stage: str, before: str, after: str) -> Iterator[Change]:
    if before != after:
        where = " ".join(part for part in (target, stage) if part) or "whole run"
        yield Change(
            kind="verdict",
            target=target,
            stage=stage,
            subject=where,
            before=str(before),
            after=str(after),
            worse=VERDICT_RANK[after] > VERDICT_RANK[before],
            fails=after == Verdict.FAIL,
            text=f"{where}: verdict {before} -> {after}",
        )


def _findings(
    target: str, stage: str, before: Sequence[Finding], after: Sequence[Finding]
) -> Iterator[Change]:
    earlier = {finding.id: finding for finding in before}
    later = {finding.id: finding for finding in after}
    place = f"{target}: " if target else ""
    for identity in dict.fromkeys([*earlier, *later]):
        old, new = earlier.get(identity), later.get(identity)
        shown = new or old
        if shown is None or (old and new and (old.verdict, old.message) == (new.verdict, new.message)):
            continue
        told = "is gone" if new is None else "is new" if old is None else "changed"
        yield Change(
            kind="finding",
            target=target,
            stage=stage,
            subject=identity,
            before=old.message if old else None,
            after=new.message if new else None,
            worse=_finding_worse(old, new),
            fails=_fails(new) and not _fails(old),
            text=f"{place}finding {shown.code} {told}: {shown.subject.name}: {shown.message}",
        )


def _finding_worse(old: Finding | None, new: Finding | None) -> bool | None:
    rank = VERDICT_RANK[new.verdict if new else "pass"] - VERDICT_RANK[old.verdict if old else "pass"]
    return None if rank == 0 else rank > 0


def _fails(finding: Finding | None) -> bool:
    return finding is not None and finding.verdict is Verdict.FAIL


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def diff_lines(diff: Diff, *, limit: int = 200) -> Sequence[str]:
    """The diff as lines for a terminal; what got worse is marked `-`, what got better `+`, the rest `~`."""
    if not diff.changes:
        return [f"{diff.before} and {diff.after} say the same."]
    marks = {True: "-", False: "+", None: "~"}
    lines = [f"{marks[change.worse]} {change.text}" for change in diff.changes[:limit]]
    left = len(diff.changes) - limit
    return [*lines, f"... and {left} more (see --json)"] if left > 0 else lines
