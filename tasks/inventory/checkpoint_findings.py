"""What the adapters remarked while they read the release, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.values import Anomaly

from ..finding import Finding, Subject, make_finding

# The adapters' words -> catalogue code and kind of subject. Words that are not here become INV009 where the
# adapter says that a file cannot be used at all (`header_...`), else INV029: none is ever dropped.
_CODES: dict[str, tuple[str, str]] = {
    "truncated_shard": ("INV001", "file"),
    "missing_shard": ("INV002", "file"),
    "pickle_only": ("INV003", "model"),
    "index_only_tensor": ("INV004", "tensor"),
    "stale_index": ("INV005", "file"),
    "no_index": ("INV006", "file"),
    "duplicate_tensor": ("INV007", "tensor"),
    "other_weights": ("INV008", "file"),
    "gguf_unreadable": ("INV009", "file"),
    "too_small": ("INV009", "file"),
    "lfs_pointer": ("INV097", "file"),
    "shard_unreadable": ("INV096", "file"),
    "text_unanswered": ("INV098", "file"),
    "index_unanswered": ("INV098", "file"),
    "no_config": ("INV099", "model"),
    "index_invalid": ("INV010", "file"),
    "index_total_size": ("INV011", "file"),
    "header_only_tensor": ("INV012", "tensor"),
    "index_wrong_shard": ("INV012", "tensor"),
    "index_path_escape": ("INV013", "file"),
    "no_weights": ("INV014", "model"),
    "link_leaves_release": ("INV032", "file"),
    "folder_unreadable": ("INV032", "file"),
    "trailing_bytes": ("INV030", "file"),
    "text_left_out": ("INV035", "file"),
    "revision_moved": ("INV036", "model"),
    "listing_only": ("INV037", "model"),
    "cache_unwritable": ("INV038", "file"),
    "snapshot_unlisted": ("INV039", "model"),
    "path_refused": ("INV032", "file"),
}


# Suffixes of files that hold weights; a refused link of that name stands where they should be.
_STANDS_FOR = re.compile(r", size (\d{1,18})$")
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")


# Remarks about single tensors; `reconciliation` tells them by pattern, every tensor counted.
_FOLDED = {
    "index_only_tensor": "index_only",
    "header_only_tensor": "header_only",
    "index_wrong_shard": "wrong_shard",
    "duplicate_tensor": "duplicate",
}
MAX_PER_CODE = 50  # files of one fault that a person reads one by one; the rest is counted


def file_anomalies(checkpoint: Checkpoint) -> Sequence[Anomaly]:
    """The remarks of a checkpoint without those that its faults, or `missing_shards`, say more exactly."""
    known = {fault.fault for fault in checkpoint.faults}
    return [
        anomaly
        for anomaly in checkpoint.anomalies
        if _FOLDED.get(anomaly.code) not in known and anomaly.code != "missing_shard"
    ]


def anomaly_findings(anomalies: Iterable[Anomaly]) -> Sequence[Finding]:
    """One finding for each anomaly, in the order in which they were met; of many alike the rest as one.

    A refused link is a remark, unless it stands for weights that nothing else in the release holds.
    """
    findings = {}
    met = tuple(anomalies)
    weightless = any(anomaly.code == "no_weights" for anomaly in met)
    numbers: dict[str, list[Anomaly]] = {}
    pointers = [anomaly for anomaly in met if anomaly.code == "lfs_pointer"]
    for anomaly in met:
        if anomaly.code == "lfs_pointer" and len(pointers) > 1:
            folded = _pointers(pointers)
            findings[folded.id] = folded
            continue
        alike = numbers.setdefault(anomaly.code, [])
        alike.append(anomaly)
        if len(alike) > MAX_PER_CODE:
            continue
        code, kind = _code(anomaly.code)
        if weightless and anomaly.code == "link_leaves_release" and anomaly.subject.endswith(_WEIGHTS):
            code = "INV013"
        finding = make_finding(
            code,
            Subject(kind=kind, name=anomaly.subject),
            anomaly.message,
            evidence=[anomaly.evidence] if anomaly.evidence else [],
            remedy=_remedy(anomaly),
        )
        findings[finding.id] = finding
    rest = [_rest(alike[MAX_PER_CODE:]) for alike in numbers.values() if len(alike) > MAX_PER_CODE]
    return (*findings.values(), *rest)


def _remedy(anomaly: Anomaly) -> str | None:
    """The remedy where it depends on what happened: a refusal's own, which its evidence ends with."""
    if anomaly.code != "listing_only" or ": " not in anomaly.evidence:
        return None
    return anomaly.evidence.partition(": ")[2] or None


def _pointers(anomalies: Sequence[Anomaly]) -> Finding:
    """All pointers as one: how many files, what they stand for, the first of them whole."""
    sizes = [int(match[1]) for each in anomalies if (match := _STANDS_FOR.search(each.message))]
    held = f", which stand for {sum(sizes):,} bytes" if sizes else ""
    first, last = anomalies[0], anomalies[-1]
    message = (
        f"{len(anomalies):,} tensor files, {first.subject} to {last.subject}, are Git LFS pointers{held}"
    )
    subject = Subject(kind="file", name="LFS pointers")
    return make_finding("INV097", subject, message, evidence=[first.message])


def _rest(anomalies: Sequence[Anomaly]) -> Finding:
    code, kind = _code(anomalies[0].code)
    message = f"{len(anomalies):,} more of the same, from {anomalies[0].subject} to {anomalies[-1].subject}"
    return make_finding(code, Subject(kind=kind, name=f"{anomalies[0].code}: {len(anomalies)} more"), message)


def _code(word: str) -> tuple[str, str]:
    if word.startswith("header_") and word not in _CODES:
        return "INV009", "file"
    return _CODES.get(word, ("INV029", "file"))
