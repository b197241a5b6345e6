"""A checkpoint of GGUF files: their headers by ranges, their bytes only when asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from day0.adapters.base.checkpoint import TensorBlock
from day0.adapters.base.errors import SourceError, UnansweredError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly, digest
from day0.adapters.base.wording import plural

from .gguf_header import GgufError, GgufHeader, read_gguf_header
from .naming import families
from .shard_headers import READERS, broken
from .tensor_files import HeadersRead, TensorFiles

SUFFIX = ".gguf"


def open_gguf(source: Source) -> TensorFiles:
    """Reads the headers of the likeliest set of GGUF files.

    Raises:
        InputError: the source refuses or cannot be reached.
    """
    sizes = {file.path: file.size for file in source.files()}
    sets = families(sizes, SUFFIX)
    shards = sets[0].files
    blocks: list[TensorBlock] = []
    layout: dict[str, str] = {}
    seen: set[str] = set()
    anomalies: list[Anomaly] = [
        Anomaly(
            code="other_weights",
            subject=family.stem,
            message=f"{plural(len(family.files), 'GGUF file')} of {family.stem} "
            f"{'is' if len(family.files) == 1 else 'are'} not part of the canonical set",
            evidence=", ".join(family.files[:5]),
        )
        for family in sets[1:]
    ]
    header_bytes = 0
    with ThreadPoolExecutor(READERS, thread_name_prefix="headers") as pool:
        headers = list(pool.map(lambda shard: _header(source, shard, sizes[shard]), shards))
    for shard, header in zip(shards, headers, strict=True):
        if isinstance(header, Anomaly):
            anomalies.append(header)
            continue
        header_bytes += header.length
        rows = {name: place for name, place in header.tensors.items() if name not in seen}
        seen.update(rows)
        layout[shard] = digest([[name, *kind, start] for name, (kind, start) in header.tensors.items()])
        blocks.append(
            TensorBlock(
                shard, list(rows), [kind for kind, _ in rows.values()], [start for _, start in rows.values()]
            )
        )
        if sizes[shard] < header.end:
            message = f"shard {shard} has {sizes[shard]:,} bytes, its header promises {header.end:,}"
            anomalies.append(Anomaly(code="truncated_shard", subject=shard, message=message, evidence=shard))
    return TensorFiles(source, HeadersRead("gguf", shards, blocks, layout, header_bytes, anomalies))


def _header(source: Source, shard: str, size: int) -> GgufHeader | Anomaly:
    try:
        return read_gguf_header(lambda start, stop: source.read(shard, start, stop), size)
    except GgufError as error:
        return broken("gguf_unreadable", shard, str(error))
    except (SourceError, UnansweredError) as error:
        return broken("shard_unreadable", shard, error.message)
