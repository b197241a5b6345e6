"""Tensor files that form one set without saying so: no index, no telling numbers, disjoint tensor names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly

from .naming import COPIES, Family, natural_key
from .shard_headers import read_headers

MAX_FILES = 4096  # looked into; a set of more has an index
_LOADED = "model"  # `model.safetensors` alone is what loaders take, whatever lies beside it
_ADAPTER = re.compile(r"adapter|lora", re.IGNORECASE)


def joined_files(source: Source, sizes: Mapping[str, int], sets: Sequence[Family]) -> Sequence[str]:
    """The files that belong together with the likeliest set, itself included; empty where none do.

    Raises:
        InputError: the source refuses or cannot be reached.
    """
    chosen = sets[0] if sets else None
    if chosen is None or chosen.total or (chosen.stem == _LOADED and not chosen.numbers) or _apart(chosen):
        return ()
    siblings = [
        family
        for family in sets[1:]
        if family.folder == chosen.folder and not family.total and not _apart(family)
        and (len(chosen.files) == 1 or _masked(family.stem) == _masked(chosen.stem))
    ]  # fmt: skip
    files = [file for family in (chosen, *siblings) for file in family.files]
    if not siblings or len(files) > MAX_FILES:
        return ()
    headers = read_headers(source, files, sizes)
    names: set[str] = set()
    joined: list[str] = []
    for family in (chosen, *siblings):
        held: set[str] = set()
        for file in family.files:
            header = headers[file]
            held |= set() if isinstance(header, Anomaly) else set(header.names)
        if held and not held & names:
            names |= held
            joined += family.files
    return sorted(joined, key=natural_key) if len(joined) > len(chosen.files) else ()


def _apart(family: Family) -> bool:
    """Whether the name says that it is a copy in another format, or an adapter."""
    name = posixpath.join(family.folder, family.stem)
    return bool(COPIES.search(name) or _ADAPTER.search(family.stem))


def _masked(stem: str) -> str:
    return re.sub(r"\d+", "#", stem)
