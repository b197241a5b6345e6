"""A checkpoint of safetensors shards."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from day0.adapters.base.checkpoint import IndexSummary, TensorBlock, TensorFault
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.base.wording import plural

from .index import Index, choose_index, fetch_index, index_of
from .index_written import as_written
from .loose_files import joined_files
from .naming import Family, families, natural_key
from .reconcile import agree, check_total, merge, reconcile
from .safetensors_header import LENGTH_BYTES, Header
from .shard_headers import read_headers
from .tensor_files import HeadersRead, TensorFiles

SUFFIX = ".safetensors"
_MAY_PASS = ("shard_unreadable", "index_unanswered")  # with another try
MAX_KEPT = 2  # releases whose tables stay in memory; the largest known takes some 100 MB


def open_safetensors(source: Source) -> TensorFiles:
    """Reads index and headers of the canonical set of shards and holds them against each other.

    A run opens the same release once a stage; what was read of a pinned revision is kept, so that a hub is
    asked for each header once.

    Raises:
        InputError: the hub refuses or cannot be reached.
        SourceError: the listing cannot be had.
    """
    key = (source.name, source.revision)
    with _LOCK:
        known = _READ.pop(key, None)
        if known is not None:
            _READ[key] = known
    if known is None:
        known = _read(source)
        if not any(anomaly.code in _MAY_PASS for anomaly in known.anomalies):
            with _LOCK:
                _READ[key] = known
                while len(_READ) > MAX_KEPT:
                    _READ.pop(next(iter(_READ)))
    return TensorFiles(source, known)


_READ: dict[tuple[str, str], HeadersRead] = {}
_LOCK = threading.Lock()


def _read(source: Source) -> HeadersRead:
    sizes = {file.path: file.size for file in source.files()}
    sets = families(sizes, SUFFIX)
    path = choose_index(sizes) or _index_beside(sizes, sets)
    # Where all tensor files form one set, their headers are needed whatever the index says.
    sure = sets[0].files if path is not None and len(sets) == 1 else ()
    with ThreadPoolExecutor(1, thread_name_prefix="index") as pool:
        text = pool.submit(fetch_index, source, path, sizes[path]) if path is not None else None
        read = dict(read_headers(source, sure, sizes)) if sure else {}
    told = _told(sizes, path, text.result() if text is not None else None, read)
    joined = joined_files(source, sizes, sets) if told.summary is None else ()
    unanswered = any(anomaly.code == "index_unanswered" for anomaly in told.anomalies)
    shards, anomalies = _canonical(sizes, told.summary, sets, joined, unanswered)
    anomalies = [*told.anomalies, *anomalies]
    read |= read_headers(source, [shard for shard in shards if shard not in read], sizes)
    headers: dict[str, Header] = {}
    for shard in shards:
        header = read[shard]
        if isinstance(header, Anomaly):
            anomalies.append(header)
        else:
            headers[shard] = header
            anomalies += check_size(shard, header, sizes[shard])
    declared = _blocks(headers)
    if told.index is not None and _of_other_tensors(told.index, declared, shards, sizes):
        anomalies.append(_stale(told.index.path, "tensors that the files hold"))
        told = _Told()
    consistent = told.agreed or (told.index is not None and agree(told.index, declared))
    blocks, duplicates, faults = (declared, [], []) if consistent else merge(declared, told.index)
    anomalies += duplicates
    faults += [fault for block in blocks for fault in _cut_off(block, sizes[block.file], headers[block.file])]
    unreadable = [shard for shard in shards if shard not in headers]
    if told.index is not None and not consistent:
        disagreements, more_faults = reconcile(told.index, declared, unreadable, sizes)
        anomalies += disagreements
        faults += more_faults
    if told.summary is not None and not unreadable and all(file in sizes for file in told.summary.files):
        data_bytes = sum(kind.bytes for block in blocks for kind in block.kinds)
        anomalies += check_total(told.summary, data_bytes, sum(sizes[shard] for shard in shards))
    layout = {shard: header.digest for shard, header in headers.items()}
    header_bytes = sum(LENGTH_BYTES + header.length for header in headers.values())
    return HeadersRead("safetensors", shards, blocks, layout, header_bytes, anomalies, faults, told.summary)


def _blocks(headers: Mapping[str, Header]) -> Sequence[TensorBlock]:
    return [
        TensorBlock(shard, header.names, header.kinds, header.starts) for shard, header in headers.items()
    ]


@dataclass(frozen=True)
class _Told:
    """What the index says: its summary, whether the headers say just that; if not, all of it."""

    summary: IndexSummary | None = None
    agreed: bool = False
    index: Index | None = None
    anomalies: Sequence[Anomaly] = ()


def _told(
    sizes: Mapping[str, int],
    path: str | None,
    text: bytes | Anomaly | None,
    read: Mapping[str, Header | Anomaly],
) -> _Told:
    if path is None or text is None:
        return _Told()
    if isinstance(text, Anomaly):
        return _Told(anomalies=[text])
    headers = {shard: header for shard, header in read.items() if not isinstance(header, Anomaly)}
    written = as_written(path, text, _blocks(headers)) if headers and len(headers) == len(read) else None
    if written is not None:
        return _Told(written, agreed=True)
    index, anomalies = _index(path, text, sizes)
    return _Told(index.summary() if index is not None else None, False, index, anomalies)


def _cut_off(block: TensorBlock, size: int, header: Header) -> Iterator[TensorFault]:
    """The tensors that end after their file does."""
    if size < header.end:
        for name, kind, start in zip(block.names, block.kinds, block.starts, strict=True):
            if start + kind.bytes > size:
                yield TensorFault(name, "cut_off", block.file)


def _index(path: str, text: bytes, sizes: Mapping[str, int]) -> tuple[Index | None, list[Anomaly]]:
    index, anomalies = index_of(path, text)
    if index is not None and index.shard_of and not any(file in sizes for file in index.summary().files):
        folder = posixpath.dirname(path)
        shards = [name for name in sizes if name.endswith(SUFFIX) and posixpath.dirname(name) == folder]
        if shards:
            return None, [*anomalies, _stale(path, f"{len(shards)} tensor files that are there")]
    return index, anomalies


def _of_other_tensors(
    index: Index, declared: Sequence[TensorBlock], shards: Sequence[str], sizes: Mapping[str, int]
) -> bool:
    """Whether every file is there and readable and none of their tensors is one of the index."""
    if len(declared) < len(shards) or not any(block.names for block in declared):
        return False
    if any(name in index.shard_of for block in declared for name in block.names):
        return False
    return all(file in sizes for file in index.summary().files)


def _stale(path: str, what: str) -> Anomaly:
    message = f"the index {path} names none of the {what}"
    return Anomaly(code="stale_index", subject=path, message=message, evidence=path)


def _index_beside(sizes: Mapping[str, int], sets: Sequence[Family]) -> str | None:
    """The index in the folder of the likeliest set, where that is not the top."""
    folder = sets[0].folder if sets else ""
    beside = {posixpath.basename(path): size for path, size in sizes.items()
              if folder and posixpath.dirname(path) == folder}  # fmt: skip
    name = choose_index(beside)
    return posixpath.join(folder, name) if name else None


def _canonical(
    sizes: Mapping[str, int],
    index: IndexSummary | None,
    sets: Sequence[Family],
    joined: Sequence[str],
    unanswered: bool,
) -> tuple[list[str], list[Anomaly]]:
    """The shards that count, and what is said about all other tensor files.

    Args:
        sizes: of all files.
        index: if one can be used.
        sets: of tensor files.
        joined: files that form one set without saying so.
        unanswered: whether an index is there that was not handed out.
    """
    listed = index.files if index is not None else joined
    named = {file for file in listed if file in sizes}
    chosen = _chosen(sets, named)
    shards = sorted(named | set(chosen.files), key=natural_key)
    anomalies = [_redundant(family, sizes) for family in sets if not set(family.files) & set(shards)]
    if index is None or set(index.files) == named:  # else the index names what is absent
        anomalies += _absent(chosen, indexed=index is not None)
    if chosen.beyond:
        which = ", ".join(map(str, chosen.beyond[:5]))
        message = (
            f"shards of {chosen.stem} bear the numbers {which}, beyond the {chosen.total} that they claim"
        )
        anomalies.append(
            Anomaly(
                code="number_beyond_total", subject=chosen.stem, message=message, evidence=chosen.files[-1]
            )
        )
    if index is None and len(shards) > 1 and not unanswered:
        message = (
            f"{len(shards):,} shards have no usable index beside them; the map is built from their headers"
        )
        anomalies.append(Anomaly(code="no_index", subject=chosen.stem, message=message, evidence=shards[0]))
    return shards, anomalies


def _absent(chosen: Family, *, indexed: bool) -> Iterator[Anomaly]:
    """What the numbers of a set promise; of names without a total an index that holds decides."""
    name = chosen.stem
    told = [(number, f"shard {number} of {chosen.total} of {name} is not there") for number in chosen.absent]
    if not indexed:
        told += [
            (number, f"shard {number} of {name} is not there, and those before and after it are")
            for number in chosen.skipped
        ]
    for number, message in told[:100]:
        subject = f"{posixpath.join(chosen.folder, chosen.stem)}#{number}"
        yield Anomaly(code="missing_shard", subject=subject, message=message, evidence=chosen.files[0])


def _chosen(sets: Sequence[Family], named: set[str]) -> Family:
    """The set to which most of the files belong that the index names; without an index the likeliest one."""
    best = max(sets, key=lambda family: len(named & set(family.files)))
    return best if named & set(best.files) else sets[0]


def _redundant(family: Family, sizes: Mapping[str, int]) -> Anomaly:
    held, be = sum(sizes[file] for file in family.files), "is" if len(family.files) == 1 else "are"
    subject = posixpath.join(family.folder, family.stem)
    files = f"{plural(len(family.files), 'tensor file')} of {subject} with {held:,} bytes"
    message = f"{files} {be} not part of the canonical set"
    return Anomaly(
        code="other_weights", subject=subject, message=message, evidence=", ".join(family.files[:5])
    )


def check_size(shard: str, header: Header, size: int) -> list[Anomaly]:
    """Whether the file is as long as its header says."""
    if size == header.end:
        return []
    if size < header.end:
        missing = header.end - size
        message = (
            f"shard {shard} has {size:,} bytes, its header promises {header.end:,}: {missing:,} are missing"
        )
        return [Anomaly(code="truncated_shard", subject=shard, message=message, evidence=shard)]
    message = f"shard {shard} has {plural(size - header.end, 'byte')} after the last tensor"
    return [Anomaly(code="trailing_bytes", subject=shard, message=message, evidence=shard)]
