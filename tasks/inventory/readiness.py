"""Whether a release is all there, still on its way, or broken: three states that call for three answers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence, Set

from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints.naming import families, natural_key, renumbered
from day0.adapters.sources.unfinished import hidden_leftovers

from ..finding import Finding, Subject, make_finding
from .awaited import is_unread
from .contradictions import missing_layers
from .missing_shards import missing_shards
from .outside_holes import outside_findings
from .readable import plural, readable
from .record_reconciliation import MAX_FILES, Readiness
from .remarks import holds_nothing
from .seen import Part, Seen

# What downloads in progress are called; the name before the suffix is that of the file to come.
_PARTIAL = re.compile(
    r"^(?P<file>.+)\.(incomplete|part|partial|aria2|crdownload|download|downloading|tmp|!qb)$", re.IGNORECASE
)
_WEIGHTS = re.compile(r"\.(safetensors|gguf|bin|pt|pth)$")
# Remarks of the adapters that no waiting mends. A file that is too short may still be written.
_BROKEN = ("trailing_bytes", "lfs_pointer", "index_path_escape", "gguf_unreadable")
_SHORT = ("truncated_shard", "header_truncated", "too_small")
_MOST_NAMES = 4
_UNREAD = "shard_unreadable"  # the source did not give it: nothing is known of the file itself
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
    if seen.release.source is not None and not seen.release.config and _lacks_config(seen):
        reasons.append("no config is there")
        state = "no_config" if state == "complete" else state
    if seen.release.source is not None and state != "config_only" and not _has_tokenizer(seen):
        reasons.append("no tokenizer file is there")
    record = Readiness(
        state=state,
        reasons=reasons,
        awaited=awaited[:MAX_FILES],
        more_awaited=max(0, len(awaited) - MAX_FILES),
        bytes_there=_bytes_there(seen),
        partial=seen.release.checkpoint.format != "none" and (bool(awaited) or seen.awaited.any),
    )
    sources = {"/readiness": "computed:the source's listing, index and headers"}
    findings = [
        *_findings(record, leftovers),
        *missing_shards(seen.release.checkpoint, _absent(seen, awaited)),
    ]
    return Part({"readiness": record}, findings, sources)


def _state(
    seen: Seen, awaited: Sequence[str], leftovers: Sequence[str], short: Sequence[Anomaly]
) -> tuple[str, list[str]]:
    checkpoint = seen.release.checkpoint
    if any(anomaly.code == "listing_only" for anomaly in checkpoint.anomalies):
        return "listing_only", ["the files are listed and cannot be read from here"]
    unread = [anomaly.subject for anomaly in checkpoint.anomalies if anomaly.code == _UNREAD]
    if unread and not seen.counted:
        return "listing_only", [f"none of {plural(len(unread), 'tensor file')} can be read from here"]
    broken = [anomaly for anomaly in checkpoint.anomalies if _is_broken(anomaly)]
    lost = sorted({fault.file for fault in checkpoint.faults if fault.fault == "index_only"}, key=natural_key)
    reasons = [f"{_are(len(awaited), 'announced file')} not there"] if awaited else []
    if leftovers:
        said = _are(len(leftovers), "file of an unfinished download", "files of an unfinished download")
        reasons.append(f"{said} there{_example(leftovers)}")
    if short:
        cut = [anomaly.subject for anomaly in short]
        promise = "its header promises" if len(short) == 1 else "their headers promise"
        reasons.append(f"{_are(len(short), 'tensor file')} shorter than {promise}{_example(cut)}")
    if broken:
        reasons.append(f"{_are(len(broken), 'file')} not what should be there, e.g. {broken[0].message}")
    empty = holds_nothing(seen)
    if empty:
        reasons.append("the tensor files hold no tensor")
    if lost:
        some = "lacks" if len(lost) == 1 else "lack"
        reasons.append(
            f"{plural(len(lost), 'file')} {some} tensors that the index places there{_example(lost)}"
        )
    gone = missing_layers(seen) if seen.counted else set()
    if gone:
        stated = seen.facts.architecture.layers
        reasons.append(f"{len(gone)} of {plural(stated, 'layer')} of the config are stored nowhere")
    essential = [finding.message for finding in outside_findings(seen)] if seen.counted else []
    reasons += essential
    if unread:
        reasons.append(f"{plural(len(unread), 'tensor file')} could not be read from here{_example(unread)}")
    # A file that is short may still be written, but only a partial file shows that one is.
    if broken or lost or empty or gone or essential or (short and not leftovers):
        return "broken", reasons
    if awaited or short:
        return "arriving", reasons
    if unread:
        return "partly_read", reasons
    if checkpoint.format == "none":
        return "config_only", ["no weights and no index are there"]
    return "complete", reasons


def _is_broken(anomaly: Anomaly) -> bool:
    header = anomaly.code.startswith("header_") and is_unread(anomaly.code) and anomaly.code not in _SHORT
    return header or anomaly.code in _BROKEN


def _are(number: int, noun: str, many: str = "") -> str:
    return f"{plural(number, noun, many)} {'is' if number == 1 else 'are'}"


def _example(names: Sequence[str]) -> str:
    """The name of the only one, or of the first of many."""
    return f": {readable(names[0])}" if len(names) == 1 else f", e.g. {readable(names[0])}"


def _lacks_config(seen: Seen) -> bool:
    return any(anomaly.code == "no_config" for anomaly in seen.release.checkpoint.anomalies)


def _absent(seen: Seen, awaited: Sequence[str]) -> Sequence[str]:
    """The awaited files that index or numbering announce, without those that a partial file does."""
    source = seen.release.source
    listed = {file.path for file in source.files()} if source else set()
    partial = {match["file"] for path in listed if (match := _PARTIAL.match(path))}
    named = set(seen.release.checkpoint.index.files) if seen.release.checkpoint.index else set()
    return [path for path in awaited if path in named or path not in partial]


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
            gone = family.absent if seen.release.checkpoint.index else (*family.absent, *family.skipped)
            if not canonical & set(family.files) or not gone:
                continue
            form = posixpath.basename(family.files[0]).removesuffix(suffix)
            for number in gone:
                name = posixpath.join(family.folder, renumbered(form, number) + suffix)
                if name not in named:
                    found.add(name)
    return found


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
        first = [readable(name) for name in record.awaited[:_MOST_NAMES]]
        left = len(record.awaited) + record.more_awaited - len(first)
        more = f" and {left} more" if left else ""
        named = f": {', '.join(first)}{more}" if record.awaited else ""
        message = f"the release is not complete yet: {'; '.join(record.reasons)}{named}"
        return [make_finding("INV045", subject, message, evidence=record.awaited)]
    if record.state == "complete" and leftovers:
        files = plural(len(leftovers), "file of an unfinished download", "files of an unfinished download")
        message = f"{files} {'lies' if len(leftovers) == 1 else 'lie'} beside a complete set of weights"
        return [make_finding("INV046", subject, message, evidence=leftovers[:MAX_FILES])]
    return []
