"""A release of which only the listing is known: its weights exist, and none of their bytes can be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.errors import AccessError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.base.wording import plural
from day0.adapters.sources.hub_settings import why_offline

from .naming import families, pickle_files
from .plain import PlainCheckpoint

_OFFLINE = "E109"  # as the hub's own refusal
SUFFIXES = (".safetensors", ".gguf")


def withheld(source: Source) -> str:
    """Why the canonical weights cannot be read although they are listed; empty where they can.

    A source says by `absent()` which listed files it cannot give, as the hub's cache does without network.
    """
    absent = getattr(source, "absent", None)
    missing = set(absent()) if absent is not None else set()
    weights = _canonical({file.path: file.size for file in source.files()})
    lacking = [path for path in weights if path in missing]
    if not lacking:
        return ""
    return (
        f"{len(lacking):,} of {plural(len(weights), 'weight file')}{_told(lacking)} listed but not on this "
        f"machine, and {why_offline()[0]}"
    )


def listing_checkpoint(source: Source, why: str | AccessError) -> PlainCheckpoint:
    """No tensors; the canonical weight files by name, and why they stay unread.

    Args:
        source: whose listing is known.
        why: the source's refusal, or a sentence.
    """
    sizes = {file.path: file.size for file in source.files()}
    weights = _canonical(sizes)
    hashed = sum(1 for file in source.files() if file.path in set(weights) and file.sha256)
    reason = why if isinstance(why, str) else why.message
    message = (
        f"only the listing is known: {plural(len(sizes), 'file')} with {sum(sizes.values()):,} bytes, among "
        f"them {plural(len(weights), 'weight file')} with {sum(sizes[path] for path in weights):,} bytes, "
        f"{hashed:,} of them with a sha256; {reason}"
    )
    evidence = f"{_OFFLINE}: {_remedy()}" if isinstance(why, str) else f"{why.code}: {why.remedy}"
    anomaly = Anomaly(code="listing_only", subject="release", message=message, evidence=evidence)
    return PlainCheckpoint("none", weights, [anomaly])


def _told(lacking: Sequence[str]) -> str:
    return f", {lacking[0]}, is" if len(lacking) == 1 else f", the first {lacking[0]}, are"


def _remedy() -> str:
    return f"{why_offline()[1]}, or download the release first."


def _canonical(sizes: Mapping[str, int]) -> Sequence[str]:
    for suffix in SUFFIXES:
        sets = families(sizes, suffix)
        if sets:
            return sets[0].files
    return pickle_files(sizes)
