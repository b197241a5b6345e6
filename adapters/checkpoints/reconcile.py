"""What index and headers say about each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from day0.adapters.base.values import Anomaly

from .index import Index
from .naming import natural_key
from .safetensors_header import Place
from .strict_json import shorten

MAX_PER_CODE = 100  # findings of one kind that a person can use; the rest is counted


def reconcile(
    index: Index,
    held: Mapping[str, Sequence[str]],
    unreadable: Iterable[str],
    present: Iterable[str],
) -> list[Anomaly]:
    """Every disagreement between the index and the headers.

    Args:
        index: what is claimed.
        held: tensor -> files whose headers declare it.
        unreadable: shards whose header could not be used; nothing is said about their tensors.
        present: files that the release has.
    """
    known, silent = set(present), set(unreadable)
    absent = Counter(file for file in index.shard_of.values() if file not in known)
    found = [
        Anomaly(
            code="missing_shard",
            subject=file,
            message=f"shard {file} is not there; the index places {count} tensors in it",
            evidence=index.path,
        )
        for file, count in sorted(absent.items(), key=lambda item: natural_key(item[0]))
    ]
    ghosts = [
        (name, file)
        for name, file in index.shard_of.items()
        if name not in held and file in known and file not in silent
    ]
    found += _capped(
        "index_only_tensor",
        [
            (name, f"the index places tensor {shorten(name)} in {file}, whose header has none")
            for name, file in ghosts
        ],
        index.path,
    )
    strangers = [(name, files) for name, files in held.items() if name not in index.shard_of]
    found += _capped(
        "header_only_tensor",
        [(name, f"tensor {shorten(name)} of {files[0]} is not in the index") for name, files in strangers],
        index.path,
    )
    moved = [
        (name, files, index.shard_of[name])
        for name, files in held.items()
        if name in index.shard_of and index.shard_of[name] not in files
    ]
    found += _capped(
        "index_wrong_shard",
        [
            (name, f"tensor {shorten(name)} lies in {files[0]}; the index says {file}")
            for name, files, file in moved
        ],
        index.path,
    )
    return found


def check_total(index: Index, data_bytes: int, file_bytes: int) -> list[Anomaly]:
    """Whether the index's total is that of the tensors or at least that of the files."""
    if index.total_size is None or index.total_size in (data_bytes, file_bytes):
        return []
    message = (
        f"the index claims a total of {index.total_size} bytes, "
        f"the tensors have {data_bytes} and the files {file_bytes}"
    )
    return [
        Anomaly(
            code="index_total_size",
            subject=index.path,
            message=message,
            evidence=f"{index.path}#/metadata/total_size",
        )
    ]


def merge(
    shards: Mapping[str, Mapping[str, Place]], index: Index | None
) -> tuple[dict[str, tuple[str, Place]], dict[str, list[str]], list[Anomaly]]:
    """One table out of all headers.

    A tensor that two shards hold is taken from the one the index names, else from the first.

    Returns:
        Tensor -> file and place; tensor -> all files that hold it; the duplicates.
    """
    table: dict[str, tuple[str, Place]] = {}
    held: dict[str, list[str]] = {}
    for file, places in shards.items():
        for name, place in places.items():
            files = held.setdefault(name, [])
            files.append(file)
            if len(files) == 1 or (index is not None and index.shard_of.get(name) == file):
                table[name] = (file, place)
    twice = [(name, files) for name, files in held.items() if len(files) > 1]
    notes = [(name, _describe_duplicate(name, files, table[name][0], shards)) for name, files in twice]
    return table, held, _capped("duplicate_tensor", notes, "headers")


def _describe_duplicate(
    name: str, files: Sequence[str], taken: str, shards: Mapping[str, Mapping[str, Place]]
) -> str:
    kinds = {shards[file][name][:2] for file in files}
    same = "the same dtype and shape" if len(kinds) == 1 else "different dtypes or shapes"
    return f"tensor {shorten(name)} lies in {' and '.join(files[:5])} with {same}; the one in {taken} is used"


def _capped(code: str, notes: Sequence[tuple[str, str]], evidence: str) -> list[Anomaly]:
    """One anomaly a tensor, up to a bound, then one that counts the rest."""
    ordered = sorted(notes, key=lambda note: natural_key(note[0]))
    listed = [
        Anomaly(code=code, subject=name, message=message, evidence=evidence)
        for name, message in ordered[:MAX_PER_CODE]
    ]
    rest = len(ordered) - len(listed)
    if rest:
        message = f"{rest} more tensors have the same fault as {shorten(ordered[0][0])}"
        listed.append(Anomaly(code=code, subject=f"{rest} more", message=message, evidence=evidence))
    return listed
