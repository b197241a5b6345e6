"""Whether an index says just what the headers say, by making its text from them and comparing bytes.

Two thirds of reading an index go into 200,000 names that the headers hold already. Writers put the entries in
one of two orders, by name or as the tensors stand in the files; an index in either is told apart by one
comparison. Any other is `None` here and is parsed: this is a way to be quick, never the one that decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from day0.adapters.base.checkpoint import IndexSummary, TensorBlock

from .index import total_of
from .strict_json import JsonError, parse_strict

_MAP = b'"weight_map"'
_OPENING = re.compile(rb"\s*:\s*\{\s*")
_CLOSING = re.compile(rb"\s*\}\s*\}\s*")
_MIDDLE = re.compile(rb'"(\s*:\s*)"')
_NEXT = re.compile(rb'"(\s*,\s*)"')
_LONGEST_HEAD = 10_000  # bytes before the map, and of one entry, that are looked at
_LARGEST = 32 * 2**20  # of an index that is made again; it is held three times meanwhile
_NOT_CONTROL = bytes(range(32, 256))


def as_written(path: str, data: bytes, blocks: Sequence[TensorBlock]) -> IndexSummary | None:
    """The summary of an index that names each tensor once, in the file that holds it, and no other.

    Args:
        path: of the index, at the top of the release.
        data: its text.
        blocks: what the headers declare, one block a file.

    Returns:
        None where the text is any other, whether right or wrong.
    """
    at = data.find(_MAP, 0, _LONGEST_HEAD)
    opening = _OPENING.match(data, at + len(_MAP)) if at >= 0 else None
    if opening is None or "/" in path or len(data) > _LARGEST:
        return None
    head = _head(data[: opening.end()])
    tensors = sum(len(block.names) for block in blocks)
    if head is None or tensors < 2 or len(set().union(*(block.names for block in blocks))) < tensors:
        return None
    for entries in _orders(data, opening.end(), blocks):
        closing = _CLOSING.fullmatch(data, opening.end() + len(entries))
        if closing is not None and data.startswith(entries, opening.end()):
            files = [block.file for block in blocks if block.names]
            return IndexSummary(path, tensors, files, *total_of(head))
    return None


def _head(text: bytes) -> dict[str, object] | None:
    """What stands before the map; None where that is not all there is."""
    try:
        parsed = parse_strict(text + b"}}")
    except JsonError:
        return None
    whole = isinstance(parsed, dict) and parsed.get("weight_map") == {}
    return parsed if whole else None


def _orders(data: bytes, begin: int, blocks: Sequence[TensorBlock]) -> Iterator[bytes]:
    """The text of all entries in the orders that writers use, spaced like the first one."""
    middle = _MIDDLE.search(data, begin, begin + _LONGEST_HEAD)
    following = _NEXT.search(data, middle.end(), middle.end() + _LONGEST_HEAD) if middle else None
    if middle is None or following is None:
        return
    between, apart = f'"{middle[1].decode()}"', f'"{following[1].decode()}"'
    entries = [f"{name}{between}{block.file}" for block in blocks for name in block.names]
    for ordered in (entries, sorted(entries)):
        try:
            if data.startswith(f'"{ordered[0]}{apart}{ordered[1]}"'.encode(), begin):
                text = f'"{apart.join(ordered)}"'.encode()
                if _is_plain(text, middle[1], following[1], len(entries)):
                    yield text
        except UnicodeEncodeError:  # a file's name that is no text
            return


def _is_plain(text: bytes, between: bytes, apart: bytes, entries: int) -> bool:
    """Whether the names need no escapes, so that the text is the only one that stands for them."""
    control = between.translate(None, _NOT_CONTROL), apart.translate(None, _NOT_CONTROL)
    expected = control[0] + (control[1] + control[0]) * (entries - 1)
    plain = b"\\" not in text and text.count(b'"') == 4 * entries
    return plain and text.translate(None, _NOT_CONTROL) == expected
