"""The index beside the shards (`*.safetensors.index.json`): which tensor it says lies in which file."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.checkpoint import IndexSummary
from day0.adapters.base.errors import SourceError, UnansweredError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.sources.paths import is_inside

from .index_json import parse_index
from .naming import natural_key
from .safetensors_header import POINTER, describe_pointer
from .strict_json import JsonError, shorten

SUFFIX = ".safetensors.index.json"
MAX_INDEX_BYTES = 100_000_000  # the largest published one has 60 MB, and every byte becomes four in memory


@dataclass(frozen=True)
class Index:
    """What an index claims.

    Attributes:
        path: of the index itself.
        shard_of: tensor -> file inside the release; claims that leave the release are gone.
        total_size: `metadata.total_size`, None where it is absent or no integer.
        total_stated: what stands in its place, as text; empty where nothing does.
    """

    path: str
    shard_of: Mapping[str, str]
    total_size: int | None
    total_stated: str = ""

    def summary(self) -> IndexSummary:
        """Everything but the map."""
        files = sorted(set(self.shard_of.values()), key=natural_key)
        return IndexSummary(self.path, len(self.shard_of), files, self.total_size, self.total_stated)


def choose_index(paths: Mapping[str, int]) -> str | None:
    """The index of the canonical weights: at the top, `model` before others; None where there is none."""
    found = [path for path in paths if path.endswith(SUFFIX) and "/" not in path]
    return min(found, key=lambda path: (path != f"model{SUFFIX}", path), default=None)


def read_index(source: Source, path: str, size: int) -> tuple[Index | None, list[Anomaly]]:
    """Reads an index; None and the reason where it cannot be used, so that the headers alone decide.

    Raises:
        InputError: the hub refuses or cannot be reached.
    """
    data = fetch_index(source, path, size)
    return (None, [data]) if isinstance(data, Anomaly) else index_of(path, data)


def fetch_index(source: Source, path: str, size: int) -> bytes | Anomaly:
    """The text of an index, or why it cannot be had.

    Raises:
        InputError: the hub refuses or cannot be reached.
    """
    if size > MAX_INDEX_BYTES:
        return _invalid(path, f"it has {size} bytes, more than {MAX_INDEX_BYTES}")
    try:
        data = source.read(path)
    except UnansweredError as error:
        message = f"the index {path} was not handed out: {error.message}; the headers are used instead"
        return Anomaly(code="index_unanswered", subject=path, message=message, evidence=path)
    except SourceError as error:
        return _invalid(path, str(error))
    if data.startswith(POINTER):
        reason = f"it is a git-lfs pointer, not the file ({describe_pointer(data)}): run `git lfs pull`"
        return _invalid(path, reason)
    return data


def index_of(path: str, data: bytes) -> tuple[Index | None, list[Anomaly]]:
    """The index that a text holds; None and the reason where it cannot be used."""
    try:
        parsed = parse_index(data)
    except JsonError as error:
        return None, [_invalid(path, str(error))]
    claims = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(claims, dict) or set(map(type, claims.values())) != {str}:
        return None, [_invalid(path, "it holds no weight_map of strings")]
    folder = posixpath.dirname(path)
    files = {file: posixpath.join(folder, file) for file in set(claims.values())}
    escapes = sorted(file for file in files if not is_inside(file))
    for file in escapes:
        del files[file]
    if folder or escapes:
        claims = {name: files[file] for name, file in claims.items() if file in files}
    return Index(path, claims, *total_of(parsed)), [_escape(path, file) for file in escapes[:100]]


def total_of(parsed: Mapping[str, Any]) -> tuple[int | None, str]:
    """`metadata.total_size` as a number, and as text where it is none; empty where it is absent."""
    metadata = parsed.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if type(total) is int else None, _stated(total)


def _stated(total: Any) -> str:
    if total is None:
        return ""
    if isinstance(total, dict | list):
        return "an object" if isinstance(total, dict) else "a list"
    return shorten(json.dumps(total), 60)


def _invalid(path: str, reason: str) -> Anomaly:
    message = f"the index {path} cannot be used: {reason}; the shards' own headers are used instead"
    return Anomaly(code="index_invalid", subject=path, message=message, evidence=path)


def _escape(path: str, file: str) -> Anomaly:
    message = f"the index {path} names the file {shorten(file)}, which leaves the release; it is not followed"
    return Anomaly(code="index_path_escape", subject=path, message=message, evidence=f"{path}#/weight_map")
