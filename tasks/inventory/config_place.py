"""Names the file that the config is from, where that is not config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..finding import Finding

_USUAL = "config.json"


def placed(
    findings: Sequence[Finding], sources: Mapping[str, str], file: str
) -> tuple[Sequence[Finding], Mapping[str, str]]:
    """The findings' evidence and the facts' sources with the config's true place."""
    if file == _USUAL:
        return findings, sources
    moved = [
        finding.model_copy(update={"evidence": tuple(_moved(item, file) for item in finding.evidence)})
        for finding in findings
    ]
    return moved, {pointer: _moved(source, file) for pointer, source in sources.items()}


def _moved(text: str, file: str) -> str:
    return text.replace(f"{_USUAL}#", f"{file}#") if _USUAL in text else text
