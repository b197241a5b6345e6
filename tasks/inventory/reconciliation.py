"""Files, index, headers and config held against each other: one verdict a tensor, folded into rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.checkpoint import IndexSummary, TensorFault
from day0.adapters.checkpoints.naming import natural_key

from ..finding import Finding, Subject, make_finding
from .arithmetic import arithmetic_checked, arithmetic_misfits
from .contradictions import missing_layers
from .duplicates import compare_duplicates
from .expectation import Compared, compare
from .folding import Fold, fold_names
from .implied import implied_by
from .record_reconciliation import (
    MAX_FILES,
    ConfigEvidence,
    ExceptionRow,
    HeaderEvidence,
    IndexEvidence,
    Reconciliation,
    TreeEvidence,
)
from .seen import Part, Seen
from .stated_layers import further_layers

MAX_ROWS = 200  # of one verdict; a release whose every tensor has a pattern of its own ends in one row
MAX_FINDINGS = 50  # of one verdict


@dataclass(frozen=True)
class _Verdict:
    """How a verdict is told.

    Attributes:
        code: of the finding.
        said: what is wrong, after the number of tensors.
        own: whether the tensors get findings of their own; else their file has one.
    """

    code: str
    said: str
    own: bool = True


VERDICTS: Mapping[str, _Verdict] = {
    "missing_shard": _Verdict("INV002", "are placed by the index in files that are not there", own=False),
    "unreadable_shard": _Verdict("INV009", "are placed by the index in files that cannot be used", own=False),
    "cut_off": _Verdict("INV001", "end after their file does", own=False),
    "index_only": _Verdict("INV004", "are only in the index, the header of their file has none of them"),
    "header_only": _Verdict("INV012", "are in a header and not in the index"),
    "wrong_shard": _Verdict("INV012", "lie in another file than the index says"),
    "duplicate": _Verdict("INV007", "lie in more than one file"),
    "expected_missing": _Verdict("INV040", "are implied by the config and stored nowhere"),
    "unexpected": _Verdict("INV041", "are stored and not implied by the config"),
    "misshapen": _Verdict("INV042", "have another shape than the config implies"),
}
"""What is said of the tensors of each verdict."""


def reconciliation(seen: Seen) -> Part:
    """Every tensor's verdict; a finding for each verdict and pattern."""
    compared = compare(seen, seen.answer)
    rows: list[ExceptionRow] = []
    findings: list[Finding] = []
    names: set[str] = set()
    for verdict, faults in _by_verdict(seen.release.checkpoint.faults).items():
        names.update(fault.name for fault in faults)
        found = _rows(verdict, fold_names(fault.name for fault in faults), faults)
        rows += found
        findings += _findings(found, compare_duplicates(seen, faults) if verdict == "duplicate" else {})
    for verdict, deviation in compared.verdicts.items():
        found = _rows(verdict, deviation.folds, ())
        rows += found
        findings += _findings(found, deviation.notes)
    stored = seen.release.checkpoint.tensors
    deviating = compared.number("unexpected") + compared.number("misshapen")
    faulty_stored = sum(1 for name in names if name in stored) + deviating
    record = Reconciliation(
        consistent=max(0, len(stored) - faulty_stored),
        faulty=len(names) + deviating + compared.number("expected_missing"),
        exceptions=rows,
        tree=_tree(seen),
        index=_index(seen),
        headers=_headers(seen),
        config=_config(seen, compared),
    )
    return Part({"reconciliation": record}, findings, _sources(record))


def _by_verdict(faults: Iterable[TensorFault]) -> Mapping[str, Sequence[TensorFault]]:
    found: dict[str, list[TensorFault]] = {word: [] for word in VERDICTS}
    for fault in faults:
        found.setdefault(fault.fault, []).append(fault)
    return {word: items for word, items in found.items() if items}


def _rows(verdict: str, folds: Sequence[Fold], faults: Sequence[TensorFault]) -> list[ExceptionRow]:
    files = _files_of(faults)
    ordered = sorted(folds, key=lambda fold: natural_key(fold.example))
    rows = [_row(verdict, fold, files) for fold in ordered[:MAX_ROWS]]
    rest = ordered[MAX_ROWS:]
    if rest:
        patterns = len({fold.pattern for fold in rest})
        rows.append(
            ExceptionRow(
                verdict=verdict,
                pattern=f"{patterns} more patterns",
                tensors=sum(fold.tensors for fold in rest),
                whole=False,
                example=rest[0].example,
                code=VERDICTS[verdict].code,
            )
        )
    return rows


def _files_of(faults: Sequence[TensorFault]) -> Mapping[str, Sequence[str]]:
    """Pattern -> files of its tensors."""
    names: dict[str, list[str]] = {}
    for fault in faults:
        names.setdefault(fault.file, []).append(fault.name)
    found: dict[str, list[str]] = {}
    for file, held in names.items():
        for pattern in dict.fromkeys(fold.pattern for fold in fold_names(held)):
            found.setdefault(pattern, []).append(file)
    return {pattern: sorted(files, key=natural_key) for pattern, files in found.items()}


def _row(verdict: str, fold: Fold, files: Mapping[str, Sequence[str]]) -> ExceptionRow:
    held = files.get(fold.pattern, ())
    return ExceptionRow(
        verdict=verdict,
        pattern=fold.pattern,
        layers=fold.layers,
        experts=fold.experts,
        others=fold.others,
        tensors=fold.tensors,
        whole=fold.whole,
        files=held[:MAX_FILES],
        more_files=max(0, len(held) - MAX_FILES),
        example=fold.example,
        code=VERDICTS[verdict].code,
    )


def _findings(rows: Sequence[ExceptionRow], notes: Mapping[str, str]) -> list[Finding]:
    """One for each pattern, with the exact sets of all its rows.

    Args:
        rows: of one verdict.
        notes: pattern -> what more is known of its tensors.
    """
    patterns: dict[str, list[ExceptionRow]] = {}
    for row in rows:
        patterns.setdefault(row.pattern, []).append(row)
    told = [_finding(pattern, held, notes) for pattern, held in list(patterns.items())[:MAX_FINDINGS]]
    rest = list(patterns.values())[MAX_FINDINGS:]
    if rest and any(told):
        told.append(_rest(rest))
    return [finding for finding in told if finding is not None]


def _finding(pattern: str, rows: Sequence[ExceptionRow], notes: Mapping[str, str]) -> Finding | None:
    verdict = VERDICTS[rows[0].verdict]
    if not verdict.own:
        return None
    number = sum(row.tensors for row in rows)
    single = number == 1
    sets = "; ".join(filter(None, (_where(row) for row in rows[:6]))) + ("; ..." if len(rows) > 6 else "")
    name = rows[0].example if single else pattern
    said = verdict.said.replace("are ", "is ", 1).replace("lie ", "lies ", 1) if single else verdict.said
    whole = f"{name} {said}" if single else f"{number:,} tensors {pattern} {said}: {sets}"
    message = whole.removesuffix(": ")
    note = notes.get(pattern, "")
    files = [file for row in rows for file in row.files]
    return make_finding(
        verdict.code,
        Subject(kind="tensor", name=f"{name} {rows[0].verdict}" if verdict.code == "INV012" else name),
        message + (f"; {note}" if note else ""),
        evidence=list(dict.fromkeys([*files, f"e.g. {rows[0].example}"]))[:MAX_FILES],
    )


def _rest(rows: Sequence[Sequence[ExceptionRow]]) -> Finding:
    verdict = VERDICTS[rows[0][0].verdict]
    number = sum(row.tensors for held in rows for row in held)
    first = rows[0][0]
    message = f"{number} more tensors in {len(rows)} further patterns {verdict.said}, e.g. {first.example}"
    return make_finding(verdict.code, Subject(kind="tensor", name=f"{first.verdict}: the rest"), message)


def _where(row: ExceptionRow) -> str:
    fold = Fold(row.pattern, row.layers, row.experts, row.others, row.tensors, row.whole, row.example)
    return fold.where


def _tree(seen: Seen) -> TreeEvidence:
    files = seen.release.source.files() if seen.release.source else ()
    canonical = set(seen.release.checkpoint.shards)
    shards = [file for file in files if file.path in canonical]
    return TreeEvidence(
        files=len(files),
        shards=len(shards),
        bytes=sum(file.size for file in shards),
        hashed=sum(1 for file in shards if file.sha256),
    )


def _headers(seen: Seen) -> HeaderEvidence:
    return HeaderEvidence(
        files=len(seen.listing.files),
        tensors=sum(count.tensors for count in seen.listing.files.values()),
        bytes=sum(group.bytes for group in seen.listing.groups),
    )


def _index(seen: Seen) -> IndexEvidence:
    index = seen.release.checkpoint.index
    if index is None:
        return IndexEvidence()
    return IndexEvidence(
        path=index.path,
        tensors=index.tensors,
        shards=len(index.files),
        total_size=index.total_size or 0,
        total_size_is=_total_is(index, seen),
    )


def _total_is(index: IndexSummary, seen: Seen) -> str:
    """What the index's total is the total of."""
    if index.total_size is None:
        return "not_a_number" if index.total_stated else "absent"
    if index.total_size == 0:
        return "zero"
    tree, headers = _tree(seen), _headers(seen)
    if index.total_size == headers.bytes:
        return "tensor_bytes"
    if index.total_size == tree.bytes:
        return "file_bytes"
    whole = tree.shards == headers.files and not any(
        fault.fault in ("missing_shard", "unreadable_shard") for fault in seen.release.checkpoint.faults
    )
    return "neither" if whole else "unchecked"


def _config(seen: Seen, compared: Compared) -> ConfigEvidence:
    answer = seen.answer
    if answer.reason or not seen.counted or seen.release.checkpoint.format == "gguf":
        checked = arithmetic_checked(seen)
        return ConfigEvidence(
            status="arithmetic" if checked else "unverified",
            by=", ".join(checked) if checked else answer.reason,
            misshapen=arithmetic_misfits(seen) if checked else 0,
            layers_off=_layers_off(seen) if checked else 0,
        )
    return ConfigEvidence(
        status="checked",
        by=f"{implied_by()}, {answer.architecture}",
        missing=compared.number("expected_missing"),
        unexpected=compared.number("unexpected"),
        misshapen=compared.number("misshapen"),
        layers_off=_layers_off(seen),
        ignored=compared.ignored,
    )


def _layers_off(seen: Seen) -> int:
    return len(missing_layers(seen) | further_layers(seen))


def _sources(record: Reconciliation) -> Mapping[str, str]:
    where = record.index.path or "the source's listing"
    return {
        "/reconciliation": "computed:the source's listing, index, headers and config.json",
        "/reconciliation/tree": "computed:the source's listing",
        "/reconciliation/index": f"{where}#/metadata" if record.index.path else "computed:no index",
        "/reconciliation/headers": "computed:headers",
        "/reconciliation/config": f"computed:{record.config.by or 'nothing asked'}",
    }
