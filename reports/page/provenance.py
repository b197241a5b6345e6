"""Environment and provenance: what the run was made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from day0.tasks.record import StageRecord

from ..model import Report
from ..records import fingerprint_of, stage_records
from ..words import bytes_text
from .blocks import target_slug
from .parts import Cell, Column, Row, Table


def provenance_tables(report: Report) -> Sequence[Table]:
    """The release, the environment, each target's fingerprint, and the keys of all records."""
    return [_release(report), *_environment(report), *_fingerprints(report), _records(report)]


def _pairs(table_id: str, caption: str, pairs: Sequence[tuple[str, str]], *, folded: bool) -> Table:
    return Table(
        id=table_id,
        caption=caption,
        columns=[Column("What"), Column("Value")],
        rows=[Row([Cell(name), Cell(value, code=True)]) for name, value in pairs],
        total=len(pairs),
        folded=folded,
    )


def _release(report: Report) -> Table:
    identity = report.inventory.facts.identity
    pairs = [
        ("model", report.model),
        ("revision", report.revision),
        ("config digest", identity.config_digest),
        ("structure digest", identity.structure_digest),
        ("weights digest", identity.weights_digest),
        ("run", report.run),
        ("created", report.created),
        ("report schema", str(report.report_schema)),
    ]
    if report.command:
        pairs.append(("command", report.command))
    return _pairs("provenance--release", "Release and run", pairs, folded=False)


def _environment(report: Report) -> Iterator[Table]:
    pairs = []
    for name, value in report.environment.items():
        if name == "packages" and isinstance(value, dict):
            pairs += [(str(package), str(version)) for package, version in value.items()]
        elif name == "memory_bytes" and isinstance(value, int):
            pairs.append(("memory", bytes_text(value)))
        else:
            pairs.append((name.replace("_", " "), str(value)))
    if pairs:
        yield _pairs("provenance--environment", "Process that ran the flow", pairs, folded=True)


def _fingerprints(report: Report) -> Iterator[Table]:
    for result in report.targets:
        fingerprint = fingerprint_of(result)
        if fingerprint is not None:
            pairs = [("family", fingerprint.family), *sorted(fingerprint.exact.items())]
            caption = f"Fingerprint of {result.target}"
            yield _pairs(f"provenance--{target_slug(result)}", caption, pairs, folded=True)


def _records(report: Report) -> Table:
    rows = []
    shared = report.inventory
    listing: list[tuple[str, StageRecord, bool]] = [("", shared, report.reused.get("inventory", False))]
    for result in report.targets:
        for stage, record in stage_records(result.stages).items():
            if record is not None:
                again = report.reused.get(f"{stage} {record.target}".strip(), False)
                listing.append((record.target, record, again))
    for target, record, again in listing:
        rows.append(
            Row(
                [
                    Cell(record.stage),
                    Cell(target or "all targets"),
                    Cell(str(record.stage_version), numeric=True),
                    Cell("from the store" if again else "computed in this run"),
                    Cell(record.key, code=True),
                    Cell(record.facts_digest, code=True),
                ]
            )
        )
    return Table(
        id="provenance--records",
        caption="Records",
        columns=[
            Column("Stage"),
            Column("Target"),
            Column("Version", True),
            Column("Origin"),
            Column("Key"),
            Column("Digest of the facts"),
        ],
        rows=rows,
        total=len(rows),
        folded=True,
    )
