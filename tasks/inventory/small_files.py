"""What the files beside the weights hold, as hashes: two releases of one structure differ by these."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import Source, SourceFile
from day0.adapters.sources.content_hash import hasher, vouched_hash
from day0.adapters.sources.local import LocalSource

from .record_trust import SmallFile
from .seen import Part, Seen

MAX_FILES = 1000
# Files of a folder that are read for their hash alone: a hub hashes its own, and no server is asked for that.
MAX_READ = 1_000_000  # bytes of one
MAX_READ_IN_ALL = 32_000_000
# Told by other facts: the tensors by headers and index.
_WEIGHTS = re.compile(r"\.(safetensors|gguf|bin|pt|pth|ckpt|onnx|onnx_data|h5|msgpack)$|\.index\.json$")


def read_small_files(seen: Seen) -> Part:
    """The part of the inventory that tells contents apart without telling them."""
    source = seen.release.source
    files = tuple(_told(source, seen)) if source is not None else ()
    return Part({"small_files": files[:MAX_FILES]}, sources={"/small_files": "computed:hashes of the files"})


def content_of(file: SourceFile) -> str:
    """The hash by which the source vouches for a file, with its kind; empty for none."""
    vouched = vouched_hash(file)
    return f"{vouched.kind}:{vouched.value}" if vouched is not None else ""


def _told(source: Source, seen: Seen) -> Iterator[SmallFile]:
    left = MAX_READ_IN_ALL
    for file in _small(source.files()):
        held = seen.texts.held.get(file.path)
        content = content_of(file)
        if held is not None:
            content = f"sha256:{hashlib.sha256(held).hexdigest()}"
        elif not content and isinstance(source, LocalSource) and file.size <= min(MAX_READ, left):
            left -= file.size
            content = _hashed(source, file)
        yield SmallFile(path=file.path, size=file.size, content=content)


def _small(files: Iterable[SourceFile]) -> Iterator[SourceFile]:
    return (file for file in files if not _WEIGHTS.search(file.path))


def _hashed(source: LocalSource, file: SourceFile) -> str:
    """As the hub would hash it; empty where it cannot be read, which other parts say where it matters."""
    try:
        data = source.read(file.path)
    except SourceError:
        return ""
    state = hasher("git", len(data))
    state.update(data)
    return f"git:{state.hexdigest()}"
