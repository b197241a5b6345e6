"""The four witnesses of a release for a terminal: listing, index, headers and config; do they agree?"""

from __future__ import annotations

from collections.abc import Iterator

from day0.reports.words import bytes_text, exact_text, plural
from day0.tasks.inventory.record_reconciliation import ConfigEvidence, Reconciliation

_LABEL = "agreement"
_ABOUT = {
    "tree": ("missing_shard", "unreadable_shard", "cut_off"),
    "index": ("index_only", "header_only", "wrong_shard", "duplicate"),
    "headers": ("header_only", "wrong_shard", "duplicate", "unreadable_shard", "cut_off"),
    "config": ("expected_missing", "unexpected", "misshapen"),
}
"""Witness -> verdicts on tensors in which it stands against another."""
_TOTAL = {
    "tensor_bytes": "its total is that of the tensors",
    "file_bytes": "its total is that of the files",
    "neither": "its total is neither that of the tensors nor of the files",
    "zero": "its total is 0",
    "not_a_number": "its total is no number",
}


def reconciliation_lines(held: Reconciliation) -> Iterator[tuple[str, str]]:
    """Label and text: always four lines, one a witness."""
    tree, index, headers = held.tree, held.index, held.headers
    if tree.files:
        weights = f"{exact_text(tree.shards)} of weights with {bytes_text(tree.bytes)}"
        files = f"{plural(tree.files, 'file')}, {weights}"
        yield _LABEL, f"tree: {files}{_judged(held, 'tree') if tree.shards else ''}"
    else:
        yield _LABEL, "tree: nothing is listed"
    if index.path:
        placed = f"{plural(index.tensors, 'tensor')} in {plural(index.shards, 'file')}"
        total = f", {_TOTAL[index.total_size_is]}" if index.total_size_is in _TOTAL else ""
        yield _LABEL, f"index: {placed}{total}{_judged_index(held)}"
    else:
        yield _LABEL, "index: none"
    if headers.files:
        kept = f"{plural(headers.tensors, 'tensor')} in {plural(headers.files, 'file')}"
        yield _LABEL, f"headers: {kept} with {bytes_text(headers.bytes)}{_judged(held, 'headers')}"
    else:
        yield _LABEL, "headers: none read"
    more = "; every tensor with --expected" if held.config.status == "arithmetic" else ""
    yield _LABEL, f"config: {_config(held.config)}{_verdict_of_config(held)}{more}"


def _judged(held: Reconciliation, witness: str) -> str:
    number = sum(row.tensors for row in held.exceptions if row.verdict in _ABOUT[witness])
    return (
        f": {plural(number, 'tensor')} {'disagrees' if number == 1 else 'disagree'}" if number else ": agree"
    )


def _judged_index(held: Reconciliation) -> str:
    """The index is not wrong for naming a file that is still to come, and does not agree either."""
    absent = sum(row.tensors for row in held.exceptions if row.verdict == "missing_shard")
    judged = _judged(held, "index")
    if not absent:
        return judged
    gone = f"{exact_text(absent)} of them {'is' if absent == 1 else 'are'} in files that are not there"
    return f": {gone}" if judged == ": agree" else f"{judged}, {gone}"


def _config(config: ConfigEvidence) -> str:
    if config.status == "checked":
        counts = f"{exact_text(config.missing)} missing, {exact_text(config.unexpected)} unexpected, "
        counts += f"{exact_text(config.misshapen)} of another shape"
        ignored = f", {exact_text(config.ignored)} ignored by the class" if config.ignored else ""
        return f"checked by {config.by}: {counts}{ignored}"
    if config.status == "arithmetic":
        return config.by
    return f"not held against the tensors{f' ({config.by})' if config.by else ''}"


def _verdict_of_config(held: Reconciliation) -> str:
    config = held.config
    if config.status == "unverified":
        return ""
    if config.status == "checked" and not config.layers_off:
        return _judged(held, "config")
    weights = config.missing + config.unexpected + config.misshapen
    off = (
        plural(weights, "weight") if weights else "",
        plural(config.layers_off, "layer") if config.layers_off else "",
    )
    said = " and ".join(text for text in off if text)
    one = weights + config.layers_off == 1
    return f": {said} {'disagrees' if one else 'disagree'}" if said else ": agree"
