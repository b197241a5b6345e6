"""The hub's cache on this machine, in huggingface_hub's layout: blobs, snapshots of links, refs, listings."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from .hub_api import COMMIT, Entry
from .paths import is_inside

_FORMAT = 1  # of the listings, as huggingface_hub 2 writes them
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class HubCache:
    """What the cache holds of one model. Writing never fails: `trouble` says why nothing is kept.

    Args:
        root: folder of the cache.
        model: hub id.
    """

    def __init__(self, root: Path, model: str) -> None:
        self.root = root
        self.trouble = ""
        self._storage = root / f"models--{model.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        """The folder of a commit; it need not exist."""
        return self._storage / "snapshots" / commit

    def find(self, commit: str, path: str, size: int) -> Path | None:
        """The cached file; None where there is none or one of another length, such as a partial one."""
        place = self.snapshot(commit) / path
        try:
            return place if place.is_file() and place.stat().st_size == size else None
        except OSError:
            return None

    def commit_of(self, ref: str) -> str | None:
        """The commit that a branch or tag stood for when it was last asked for."""
        if not is_inside(ref):
            return None
        try:
            text = (self._storage / "refs" / ref).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return None
        return text if COMMIT.fullmatch(text) else None

    def keep_ref(self, ref: str, commit: str) -> None:
        """Remembers which commit a branch or tag stands for."""
        if is_inside(ref) and self.commit_of(ref) != commit:
            self._write(self._storage / "refs" / ref, commit.encode())

    def listing(self, commit: str) -> Sequence[Entry] | None:
        """All files of a commit as it was listed once; None where that is not known."""
        try:
            kept = json.loads((self._storage / "trees" / f"{commit}.json").read_bytes())
            if kept["format_version"] != _FORMAT:
                return None
            return [_entry(path, facts) for path, facts in sorted(kept["files"].items())]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def keep_listing(self, commit: str, entries: Sequence[Entry]) -> None:
        """Remembers all files of a commit."""
        place = self._storage / "trees" / f"{commit}.json"
        if place.exists() and os.access(place.parent, os.W_OK):
            return
        files = {entry.path: _kept(entry) for entry in entries}
        self._write(place, json.dumps({"format_version": _FORMAT, "files": files}, indent=1).encode())

    def keep(self, commit: str, path: str, blob: str, data: bytes) -> None:
        """Puts a file whose content was checked under its hash, and a link to it into the snapshot."""
        place, link = self._storage / "blobs" / blob, self.snapshot(commit) / path
        if not _HASH.fullmatch(blob) or not is_inside(path) or self.trouble:
            return
        if not place.is_file() or place.stat().st_size != len(data):
            self._write(place, data)
        self._link(link, place, data)

    def _link(self, link: Path, place: Path, data: bytes) -> None:
        if self.trouble:
            return
        fresh = link.with_name(f".{link.name[:200]}.{uuid.uuid4().hex[:8]}")
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            fresh.symlink_to(os.path.relpath(place, link.parent))
            fresh.replace(link)
        except (OSError, NotImplementedError):  # a file system without links holds the file itself
            fresh.unlink(missing_ok=True)
            self._write(link, data)

    def _write(self, place: Path, data: bytes) -> None:
        """Whole or not at all, under the umask, so that others who share the cache can read it."""
        fresh = place.with_name(f".{place.name[:200]}.{os.getpid()}-{threading.get_ident()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
            fresh.replace(place)
        except OSError as error:
            self.trouble = self.trouble or f"{place.parent}: {error.strerror or error}"
            try:
                fresh.unlink(missing_ok=True)
            except OSError:
                return  # nothing of it is there


def content_hash(entry: Entry) -> str:
    """The hash under which the cache knows a file: of its content, not of a pointer to it."""
    return entry.sha256 or ("" if entry.xet else entry.blob)


def matches(entry: Entry, data: bytes) -> bool:
    """Whether bytes are the file that was listed, by length and by the hash that the listing gives."""
    if len(data) != entry.size:
        return False
    if entry.sha256:
        return hashlib.sha256(data).hexdigest() == entry.sha256
    if not content_hash(entry):
        return True
    whole = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    whole.update(data)
    return whole.hexdigest() == entry.blob


def _kept(entry: Entry) -> Mapping[str, object]:
    kept: dict[str, object] = {"size": entry.size, "blob_id": entry.blob}
    if entry.sha256:
        kept |= {"lfs_sha256": entry.sha256, "lfs_size": entry.size}
    if entry.xet:
        kept["xet_hash"] = entry.xet
    return kept


def _entry(path: str, kept: Mapping[str, object]) -> Entry:
    size = kept.get("lfs_size") or kept["size"]
    if type(size) is not int:
        raise TypeError("a size is no integer")
    words = (kept["blob_id"], kept.get("lfs_sha256") or "", kept.get("xet_hash") or "")
    return Entry(path, size, *(str(word) for word in words))
