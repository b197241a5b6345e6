"""What a download that has not finished, or never will, leaves behind in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.source import Source
from .local import LocalSource

MAX_NAMED = 100  # leftovers that are told; a folder of more is no release
_HIDDEN = (".cache/huggingface/download", ".huggingface/download")


def hidden_leftovers(source: Source | None) -> Sequence[str]:
    """Unfinished files in the folders that huggingface_hub keeps beside a download; they are not listed.

    Only their existence is told: their names are hashes, not those of the files that they become.
    """
    if not isinstance(source, LocalSource):
        return ()
    found: list[str] = []
    for folder in _HIDDEN:
        try:
            paths = sorted((source.folder / folder).rglob("*.incomplete"))
        except OSError:  # not to be listed: nothing is known
            continue
        found += [path.relative_to(source.folder).as_posix() for path in paths]
    return found[:MAX_NAMED]
