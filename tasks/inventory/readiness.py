"""Whether a release is all there, still on its way, or broken: three states that call for three answers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence, Set

from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints.naming import families, natural_key
from day0.adapters.sources.unfinished import hidden_leftovers

from ..finding import Finding, Subject, make_finding
from .record_reconciliation import MAX_FILES, Readiness
from .seen import Part, Seen

# What downloads in progress are called; the name before the suffix is that of the file to come.
_PARTIAL = re.compile(
    r"^(?P<file>.+)\.(incomplete|part|partial|aria2|crdownload|download|downloading|tmp|!qb)$", re.IGNORECASE
)
_WEIGHTS = re.compile(r"\.(safetensors|gguf|bin|pt|pth)$")
# Remarks of the adapters that no waiting mends. A file that is too short may still be written.
_BROKEN = ("trailing_bytes", "shard_unreadable", "lfs_pointer", "index_path_escape", "gguf_unreadable")
_SHORT = ("truncated_shard", "header_truncated", "too_small")
_TOKENIZER = re.compile(
    r"tokenizer(_config)?\.json|tokenizer\.model|vocab\.(json|txt)|.*\.tiktoken|tiktoken\.model|tekken\.json"
)


def readiness(seen: Seen) -> Part:
    """The state of the release with its reasons; a finding for one that is still on its way."""
    anomalies = seen.release.checkpoint.anomalies
    awaited = _awaited(seen)
    leftovers = _leftovers(seen)
    short = [anomaly for anomaly in anomalies if anomaly.code in _SHORT]
    state, reasons = _state(seen, awaited, leftovers, short)
    if seen.release.source is not None and state != "config_only" and not _has_tokenizer(seen):
        reasons.append("no tokenizer file is there")
    record = Readiness(
        state=state,
        reasons=reasons,
        awaited=awaited[:MAX_FILES],
        more_awaited=max(0, len(awaited) - MAX_FILES),
        bytes_there=_bytes_there(seen),
    )
    sources = {"/readiness": "computed:the source's listing, index and headers"}
    return Part({"readiness": record}, _findings(record, leftovers), sources)


def _state(
    seen: Seen, awaited: Sequence[str], leftovers: Sequence[str], short: Sequence[Anomaly]
) -> tuple[str, list[str]]:
    checkpoint = seen.release.checkpoint
    if any(anomaly.code == "listing_only" for anomaly in checkpoint.anomalies):
        return "listing_only", ["the files are listed and cannot be read from here"]
    unread = [anomaly.subject for anomaly in checkpoint.anomalies if anomaly.code == "shard_unreadable"]
    if unread and not seen.counted:
        return "listing_only", [f"none of {len(unread)} tensor files can be read from here"]
    broken = [anomaly for anomaly in checkpoint.anomalies if _is_broken(anomaly)]
    lost = sorted({fault.file for fault in checkpoint.faults if fault.fault == "index_only"}, key=natural_key)
    reasons = [f"{len(awaited)} announced files are not there"] if awaited else []
    if leftovers:
        reasons.append(f"{len(leftovers)} files of an unfinished download are there, e.g. {leftovers[0]}")
    if short:
        reasons.append(f"{len(short)} tensor files are shorter than they should be, e.g. {short[0].subject}")
    if broken:
        reasons.append(f"{len(broken)} files are not what they should be, e.g. {broken[0].message}")
    if lost:
        reasons.append(f"{len(lost)} files lack tensors that the index places in them, e.g. {lost[0]}")
    arriving = bool(awaited) or (bool(leftovers) and bool(short))
    if broken or (short and not arriving):
        return "broken", reasons
    if arriving:
        return "arriving", reasons
    if lost:
        return "broken", reasons
    if checkpoint.format == "none":
        return "config_only", ["no weights and no index are there"]
    return "complete", reasons


def _is_broken(anomaly: Anomaly) -> bool:
    header = anomaly.code.startswith("header_") and anomaly.code not in _SHORT
    return header or anomaly.code in _BROKEN


def _awaited(seen: Seen) -> Sequence[str]:
    """Files that index, numbering or a partial file announces and that are not there."""
    source, checkpoint = seen.release.source, seen.release.checkpoint
    if source is None:
        return ()
    there = {file.path for file in source.files()}
    named = {path for path in (checkpoint.index.files if checkpoint.index else ()) if path not in there}
    for path in there:
        match = _PARTIAL.match(path)
        if match and match["file"] not in there and _WEIGHTS.search(match["file"]):
            named.add(match["file"])
    return sorted(named | _unnumbered(seen, there, named), key=natural_key)


def _unnumbered(seen: Seen, there: Set[str], named: Set[str]) -> set[str]:
    """What the numbers of the canonical files promise, under the name that the file would bear."""
    canonical = set(seen.release.checkpoint.shards)
    found = set()
    for suffix in (".safetensors", ".gguf", ".bin"):
        for family in families(there, suffix):
            if not canonical & set(family.files) or not family.absent:
                continue
            form = posixpath.basename(family.files[0]).removesuffix(suffix)
            for number in family.absent:
                name = posixpath.join(family.folder, _numbered(form, number) + suffix)
                if name not in named:
                    found.add(name)
    return found


def _numbered(form: str, number: int) -> str:
    """The name of a file of the same set with another number."""
    return re.sub(
        r"^(.+?[-_.])(\d{1,9})((?:[-_]of[-_]\d{1,9})?)$",
        lambda match: f"{match[1]}{number:0{len(match[2])}d}{match[3]}",
        form,
    )


def _leftovers(seen: Seen) -> Sequence[str]:
    files = seen.release.source.files() if seen.release.source else ()
    listed = [file.path for file in files if _PARTIAL.match(file.path)]
    return [*listed, *hidden_leftovers(seen.release.source)]


def _has_tokenizer(seen: Seen) -> bool:
    files = seen.release.source.files() if seen.release.source else ()
    if seen.release.checkpoint.format == "gguf":  # it lies within the file
        return True
    return any(_TOKENIZER.fullmatch(file.path) for file in files)


def _bytes_there(seen: Seen) -> int:
    canonical = set(seen.release.checkpoint.shards)
    files = seen.release.source.files() if seen.release.source else ()
    return sum(file.size for file in files if file.path in canonical)


def _findings(record: Readiness, leftovers: Sequence[str]) -> Sequence[Finding]:
    subject = Subject(kind="model", name="release")
    if record.state == "arriving":
        more = f" and {record.more_awaited} more" if record.more_awaited else ""
        named = f": {', '.join(record.awaited)}{more}" if record.awaited else ""
        message = f"the release is not complete yet: {'; '.join(record.reasons)}{named}"
        return [make_finding("INV045", subject, message, evidence=record.awaited)]
    if record.state == "complete" and leftovers:
        message = f"{len(leftovers)} files of an unfinished download lie beside a complete set of weights"
        return [make_finding("INV046", subject, message, evidence=leftovers[:MAX_FILES])]
    return []
