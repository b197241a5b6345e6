"""What index and headers say about each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from day0.adapters.base.checkpoint import IndexSummary, TensorBlock, TensorFault, TensorKind
from day0.adapters.base.values import Anomaly
from day0.adapters.base.wording import plural

from .index import Index
from .naming import natural_key
from .strict_json import shorten

MAX_PER_CODE = 100  # findings of one kind that a person can use; the rest is counted


def reconcile(
    index: Index,
    blocks: Sequence[TensorBlock],
    unreadable: Iterable[str],
    present: Iterable[str],
) -> tuple[list[Anomaly], list[TensorFault]]:
    """Every disagreement between the index and the headers.

    Args:
        index: what is claimed.
        blocks: what the headers declare, one block a file; duplicates included.
        unreadable: shards whose header could not be used; nothing is said about their tensors.
        present: files that the release has.

    Returns:
        What a person may want to read, bounded; and every tensor at fault, unbounded.
    """
    held: dict[str, list[str]] = {}
    for block in blocks:
        for name in block.names:
            held.setdefault(name, []).append(block.file)
    faults = [
        *_only_in_index(index, held, set(unreadable), set(present)),
        *(TensorFault(name, "header_only", files[0]) for name, files in held.items()
          if name not in index.shard_of),
        *(TensorFault(name, "wrong_shard", files[0]) for name, files in held.items()
          if name in index.shard_of and index.shard_of[name] not in files),
    ]  # fmt: skip
    absent = Counter(fault.file for fault in faults if fault.fault == "missing_shard")
    found = [
        Anomaly(
            code="missing_shard",
            subject=file,
            message=f"shard {file} is not there; the index places {plural(count, 'tensor')} in it",
            evidence=index.path,
        )
        for file, count in sorted(absent.items(), key=lambda item: natural_key(item[0]))
    ]
    for fault, code, describe in _DESCRIBED:
        notes = [(item.name, describe(item, index)) for item in faults if item.fault == fault]
        found += _capped(code, notes, index.path)
    return found, faults


def agree(index: Index, blocks: Sequence[TensorBlock]) -> bool:
    """Whether the index names each tensor once, in the file that holds it, and no other."""
    if sum(len(block.names) for block in blocks) != len(index.shard_of):
        return False
    return all(set(map(index.shard_of.get, block.names)) <= {block.file} for block in blocks)


def _only_in_index(
    index: Index, held: Mapping[str, Sequence[str]], unreadable: Set[str], present: Set[str]
) -> Iterator[TensorFault]:
    for name, file in index.shard_of.items():
        if name in held:
            continue
        if file not in present:
            yield TensorFault(name, "missing_shard", file)
        else:
            yield TensorFault(name, "unreadable_shard" if file in unreadable else "index_only", file)


_DESCRIBED: tuple[tuple[str, str, Callable[[TensorFault, Index], str]], ...] = (
    (
        "index_only",
        "index_only_tensor",
        lambda item, _: f"the index places tensor {shorten(item.name)} in {item.file}, whose header has none",
    ),
    (
        "header_only",
        "header_only_tensor",
        lambda item, _: f"tensor {shorten(item.name)} of {item.file} is not in the index",
    ),
    (
        "wrong_shard",
        "index_wrong_shard",
        lambda item, index: (
            f"tensor {shorten(item.name)} lies in {item.file}; the index says {index.shard_of[item.name]}"
        ),
    ),
)
"""Fault -> the adapter's word for it and how it is said."""


def check_total(index: IndexSummary, data_bytes: int, file_bytes: int) -> list[Anomaly]:
    """Whether the index's total is that of the tensors or at least that of the files."""
    if index.total_size is None and index.total_stated:
        message = (
            f"the index states {index.total_stated} as its total size, which is no number; "
            f"the tensors have {data_bytes:,} bytes"
        )
    elif index.total_size is None or index.total_size in (data_bytes, file_bytes):
        return []
    else:
        message = (
            f"the index claims a total of {index.total_size:,} bytes, "
            f"the tensors have {data_bytes:,} and the files {file_bytes:,}"
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
    blocks: Sequence[TensorBlock], index: Index | None
) -> tuple[Sequence[TensorBlock], list[Anomaly], list[TensorFault]]:
    """Blocks in which no tensor comes twice.

    A tensor that two shards hold is taken from the one the index names, else from the first.

    Returns:
        The blocks; the duplicates, as remarks and as faults.
    """
    first: dict[str, int] = {}
    twice: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        for name in block.names:
            if first.setdefault(name, number) != number:
                twice.setdefault(name, [first[name]]).append(number)
    if not twice:
        return blocks, [], []
    taken = {
        name: _taken(name, [blocks[number] for number in numbers], index) for name, numbers in twice.items()
    }
    rows = [dict(zip(block.names, block.kinds, strict=True)) for block in blocks]
    notes = [
        (name, _describe_duplicate(name, {blocks[number].file: rows[number][name] for number in numbers},
                                   taken[name]))
        for name, numbers in twice.items()
    ]  # fmt: skip
    starts = [dict(zip(block.names, block.starts, strict=True)) for block in blocks]
    faults = [TensorFault(name, "duplicate", blocks[number].file, rows[number][name], starts[number][name])
              for name, numbers in twice.items() for number in numbers]  # fmt: skip
    kept = [_without(block, {name for name in block.names if taken.get(name, block.file) != block.file})
            for block in blocks]  # fmt: skip
    return kept, _capped("duplicate_tensor", notes, "headers"), faults


def _taken(name: str, blocks: Sequence[TensorBlock], index: Index | None) -> str:
    named = index.shard_of.get(name) if index is not None else None
    return next((block.file for block in blocks if block.file == named), blocks[0].file)


def _without(block: TensorBlock, names: Set[str]) -> TensorBlock:
    if not names:
        return block
    rows = [row for row, name in enumerate(block.names) if name not in names]
    return TensorBlock(
        block.file,
        [block.names[row] for row in rows],
        [block.kinds[row] for row in rows],
        [block.starts[row] for row in rows],
    )


def _describe_duplicate(name: str, kinds: Mapping[str, TensorKind], taken: str) -> str:
    same = "the same dtype and shape" if len(set(kinds.values())) == 1 else "different dtypes or shapes"
    files = " and ".join(list(kinds)[:5])
    return f"tensor {shorten(name)} lies in {files} with {same}; the one in {taken} is used"


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
