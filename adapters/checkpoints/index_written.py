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
_AT_ONCE = 1000  # entries made and compared together, so that they cost no fresh memory
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
    if opening is None or "/" in path:
        return None
    head = _head(data[: opening.end()])
    tensors = sum(len(block.names) for block in blocks)
    if head is None or tensors < 2 or len(set().union(*(block.names for block in blocks))) < tensors:
        return None
    spacing = _spacing(data, opening.end())
    if spacing is None:
        return None
    between = f'"{spacing[0].decode()}"'
    for ordered in (_in_files(blocks, between), _by_name(blocks, between)):
        end = _matched(data, opening.end(), ordered, spacing)
        if end is not None and _CLOSING.fullmatch(data, end):
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


def _spacing(data: bytes, begin: int) -> tuple[bytes, bytes] | None:
    """How the first entry is written: what stands between name and file, and before the next name."""
    middle = _MIDDLE.search(data, begin, begin + _LONGEST_HEAD)
    following = _NEXT.search(data, middle.end(), middle.end() + _LONGEST_HEAD) if middle else None
    return (middle[1], following[1]) if middle and following else None


def _in_files(blocks: Sequence[TensorBlock], between: str) -> Iterator[Sequence[str]]:
    for block in blocks:
        rest = f"{between}{block.file}"
        for begin in range(0, len(block.names), _AT_ONCE):
            yield [name + rest for name in block.names[begin : begin + _AT_ONCE]]


def _by_name(blocks: Sequence[TensorBlock], between: str) -> Iterator[Sequence[str]]:
    entries = sorted(f"{name}{between}{block.file}" for block in blocks for name in block.names)
    for begin in range(0, len(entries), _AT_ONCE):
        yield entries[begin : begin + _AT_ONCE]


def _matched(
    data: bytes, begin: int, ordered: Iterator[Sequence[str]], spacing: tuple[bytes, bytes]
) -> int | None:
    """Where these entries end, if they are what stands there; some thousand are made at once."""
    apart = f'"{spacing[1].decode()}"'
    control = [space.translate(None, _NOT_CONTROL) for space in spacing]
    at = begin + 1
    for entries in ordered:
        text = apart.join(entries)
        try:
            made = (text if at == begin + 1 else apart + text).encode()
        except UnicodeEncodeError:  # a file's name that is no text
            return None
        if not data.startswith(made, at):
            return None
        # Whatever needs an escape could stand for something else: names are to be as they are.
        strange = made.translate(None, _NOT_CONTROL)
        lines = (control[1] + control[0]) * len(entries)
        if b"\\" in made or strange != lines[0 if at > begin + 1 else len(control[1]) :]:
            return None
        if made.count(b'"') != 4 * len(entries) - (2 if at == begin + 1 else 0):
            return None
        at += len(made)
    return at + 1 if data[begin : begin + 1] == b'"' == data[at : at + 1] else None
