"""Pickles of a release listed by their opcodes and globals, by ranges and within bounds, never loaded.

Containers: torch's zip archive (1.6 and newer), its old stream of five pickles, its oldest tar, a bare
pickle.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import Source, SourceFile
from day0.adapters.base.values import Value

from .naming import PICKLED_SUFFIXES
from .pickle_archive import MAX_MEMBERS, Fetch, Member, member_bytes, members
from .pickle_globals import is_plain, runs_commands
from .pickle_opcodes import Opcodes, PickleError, Window, walk_pickle

MAX_FILES = 1000
MAX_FETCHED = 32_000_000  # bytes of opcodes of one file
_READERS = 8
_FURTHER = 100  # pickles behind the first one of a bare stream
_TAIL = 22 + 65_535  # bytes in which the end of a zip's directory must stand
_DIRECTORY_END = b"PK\x05\x06"
_HEAD = 1 << 16
_MAGIC = 0x1950A86A20F9469CFC6C  # torch/serialization.py, first pickle of the old stream
_STREAM = 5  # pickles of the old stream: magic, protocol, system, object, keys
_PACKED = {b"7z\xbc\xaf": "a 7z archive", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz",
           b"BZh": "bzip2", b"Rar!": "a rar archive"}  # fmt: skip
_LOADED = re.compile(r"(^|/)(pytorch_model|adapter_model|consolidated)[^/]*\.(bin|pth?|ckpt)$")
_FIRST = frozenset(b"\x80(]})cilFGIJKLMNSTUVXCB.")  # opcodes that a pickle may start with
# Walking keeps up to some 100 MB of a hostile file; fetching is what goes side by side.
_WALKING = threading.Lock()


class PickleListing(Value):
    """What one file would import.

    Attributes:
        path: in the release.
        size: bytes.
        container: `zip`, `legacy`, `tar`, `bare`; empty where it is no pickle at all.
        protocol: highest that is stated.
        opcodes: that were walked.
        globals: everything that loading would import, sorted; `?` for a computed name.
        foreign: those that plain weights do not need.
        commands: those of them that can run commands or text as code.
        code: whether the archive carries TorchScript code.
        error: why it could not be listed to its end.
    """

    path: str
    size: int
    container: str = ""
    protocol: int = 0
    opcodes: int = 0
    globals: Sequence[str] = ()
    foreign: Sequence[str] = ()
    commands: Sequence[str] = ()
    code: bool = False
    error: str = ""


def list_pickles(source: Source) -> Sequence[PickleListing]:
    """All files of the release that may be pickles, in the order of the listing."""
    files = [file for file in source.files() if file.path.endswith(PICKLED_SUFFIXES)][:MAX_FILES]
    if not files:
        return ()
    with ThreadPoolExecutor(_READERS, thread_name_prefix="pickles") as pool:
        return tuple(pool.map(lambda file: list_pickle(source, file), files))


def list_pickle(source: Source, file: SourceFile) -> PickleListing:
    """One file; whatever is wrong with it stands in the answer."""
    found = _Found()
    try:
        _list(_cached(source, file), file.size, found)
    except PickleError as error:
        found.error = str(error)
    except SourceError as error:
        found.error = f"cannot be read: {error.message}"
    if not found.container and not found.error and _LOADED.search(file.path):
        found.error = "is no pickle, though loaders take a file of this name for one"
    names = sorted(found.opcodes.globals)
    foreign = tuple(name for name in names if not is_plain(name))
    return PickleListing(
        path=file.path,
        size=file.size,
        container=found.container,
        protocol=found.opcodes.protocol,
        opcodes=found.opcodes.number,
        globals=tuple(names),
        foreign=foreign,
        commands=tuple(name for name in foreign if runs_commands(name)),
        code=found.code,
        error=found.error,
    )


class _Found:
    """What is known of a file so far, kept where reading breaks off."""

    def __init__(self) -> None:
        self.opcodes = Opcodes()
        self.container = ""
        self.code = False
        self.error = ""
        self.left = MAX_FETCHED


def _cached(source: Source, file: SourceFile) -> Fetch:
    """Reads of the file; the first bytes, which every container is told by, are asked for once."""
    head = source.read(file.path, 0, min(_HEAD, file.size)) if file.size else b""

    def fetch(start: int, stop: int) -> bytes:
        return head[start:stop] if stop <= len(head) else source.read(file.path, start, stop)

    return fetch


def _list(fetch: Fetch, size: int, found: _Found) -> None:
    head = fetch(0, min(size, 512))
    if head.startswith(b"version https://git-lfs"):
        raise PickleError("is a git-lfs pointer, not the file")
    if head.startswith(b"PK"):
        found.container = "zip"
        _list_archive(fetch, size, found)
    elif head[257:262] == b"ustar":
        found.container = "tar"
        _list_tar(fetch, size, found)
    elif head and head[0] in _FIRST:
        _list_stream(fetch, size, found)
    else:
        packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
        if packed:
            raise PickleError(f"is packed as {packed}, which is not unpacked here")
        _list_hidden(fetch, size, found)


def _list_hidden(fetch: Fetch, size: int, found: _Found) -> None:
    """A zip archive behind other bytes: its directory stands at the end, where loaders look for it."""
    tail = fetch(max(0, size - _TAIL), size)
    place = tail.rfind(_DIRECTORY_END)
    if place < 0:
        return
    found.container = "zip"
    end = max(0, size - _TAIL) + place
    length, offset = (int.from_bytes(tail[place + at : place + at + 4], "little") for at in (12, 16))
    before = max(
        0, end - length - offset
    )  # offsets count from the archive's own first byte, or from the file's
    if before:
        _list_archive(_shifted(fetch, before), size - before, found)
    else:
        _list_archive(fetch, size, found)
    raise PickleError("does not begin with an archive, and one stands behind the first bytes")


def _list_archive(fetch: Fetch, size: int, found: _Found) -> None:
    pickles: list[Member] = []
    nested = ""
    for member in members(fetch, size):
        found.code = found.code or "/code/" in member.name or member.name.startswith("code/")
        if member.name.endswith((".pkl", ".pickle")):
            if len(pickles) == MAX_MEMBERS:
                raise PickleError(f"holds more than {MAX_MEMBERS} pickles")
            pickles.append(member)
        elif member.name.endswith((".zip", ".pt", ".pth", ".bin", ".whl")):
            nested = member.name
    for member in pickles:
        inner, length = member_bytes(fetch, size, member)
        _walk(inner, length, 0, found)
    if not pickles:
        raise PickleError("is an archive without a pickle")
    if nested:
        raise PickleError(f"holds an archive within the archive: {ascii(nested)[:100]}")


def _list_stream(fetch: Fetch, size: int, found: _Found) -> None:
    """A bare pickle, or torch's old stream: five pickles and then raw numbers."""
    found.container = "bare"
    try:
        end = _walk(fetch, size, 0, found)
    except PickleError:
        stated = fetch(0, 1) == b"\x80" and found.opcodes.protocol <= pickle.HIGHEST_PROTOCOL
        if not stated and found.opcodes.number <= 8 and not found.opcodes.globals:
            # Raw numbers whose first bytes happen to be opcodes.
            found.container, found.opcodes = "", Opcodes()
            _list_hidden(fetch, size, found)
            return
        raise
    if found.opcodes.integer == _MAGIC:
        found.container = "legacy"
        for _ in range(_STREAM - 1):
            end = _walk(fetch, size, end, found)
        return  # raw numbers follow
    _list_further(fetch, size, end, found)


def _list_further(fetch: Fetch, size: int, end: int, found: _Found) -> None:
    """Pickles behind the first one's end, which no loader of weights reads and another program may."""
    rest = size - end
    for number in range(_FURTHER):
        if end >= size or fetch(end, end + 1)[0] not in _FIRST:
            break
        try:
            end = _walk(fetch, size, end, found)
        except PickleError as error:
            raise PickleError(
                f"goes on for {rest} bytes behind the pickle's end; what follows {error}"
            ) from None
        if number == _FURTHER - 1 and end < size:
            break
    if rest:
        raise PickleError(f"goes on for {rest} bytes behind the pickle's end")


def _list_tar(fetch: Fetch, size: int, found: _Found) -> None:
    """Torch's oldest format; of each member only the first pickle, raw numbers follow it in two of them."""
    place = number = 0
    while place + 512 <= size and number < MAX_MEMBERS:
        header = fetch(place, place + 512)
        name = header[:100].rstrip(b"\0")
        if not name:
            return
        digits = header[124:136].strip(b"\0 ")
        if not digits or not all(48 <= digit < 56 for digit in digits):
            raise PickleError(f"has a damaged tar header at byte {place}")
        length, start = int(digits, 8), place + 512
        if start + length > size:
            raise PickleError("has a tar member that ends beyond the file")
        if length:
            _walk(_shifted(fetch, start), length, 0, found)
        place, number = start + (length + 511) // 512 * 512, number + 1


def _shifted(fetch: Fetch, start: int) -> Fetch:
    return lambda first, last: fetch(start + first, start + last)


def _walk(fetch: Callable[[int, int], bytes], size: int, start: int, found: _Found) -> int:
    """Walks one pickle; its first block is fetched before the turn to walk is waited for."""
    window = Window(fetch, size, found.left)
    window.read(start, 1)
    with _WALKING:
        walk_pickle(window, start, found.opcodes)
    found.left = window.left
    return found.opcodes.end
